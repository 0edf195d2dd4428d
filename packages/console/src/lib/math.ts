import {
  ACCENTS,
  FUNCTIONS,
  INTEGRALS,
  LARGE,
  LETTERS,
  LIMITS,
  NOTHING,
  OPERATORS,
  SPACES,
  STYLE_BASES,
  STYLE_EXCEPTIONS,
  STYLES,
} from "./math-symbols.ts";

/** TeX as models write it, read into the elements of MathML, which browsers draw themselves. */
export interface MathNode {
  tag: string;
  attributes?: Record<string, string>;
  children: (MathNode | string)[];
}

const LENGTH_MAX = 4_000;
const DEPTH_MAX = 40;

const node = (
  tag: string,
  children: MathNode["children"],
  attributes?: Record<string, string>,
): MathNode => ({ tag, children, ...(attributes && { attributes }) });
const row = (children: MathNode[]): MathNode =>
  children.length === 1 ? children[0]! : node("mrow", children);

const TOKEN = /\\([a-zA-Z]+\*?|[\s\S])|(\d+(?:\.\d+)?)|([a-zA-Z])|(\s+)|([\s\S])/y;

type Token = { kind: "command" | "number" | "letter" | "symbol"; text: string };

function tokensOf(tex: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(tex); match; match = TOKEN.exec(tex)) {
    const [, command, number, letter, , symbol] = match;
    if (command !== undefined) tokens.push({ kind: "command", text: command });
    else if (number !== undefined) tokens.push({ kind: "number", text: number });
    else if (letter !== undefined) tokens.push({ kind: "letter", text: letter });
    else if (symbol !== undefined) tokens.push({ kind: "symbol", text: symbol });
    if (TOKEN.lastIndex >= tex.length) break;
  }
  return tokens;
}

function styled(text: string, style: string): string {
  const bases = STYLE_BASES[style];
  if (!bases) return text;
  return [...text]
    .map((letter) => {
      const known = STYLE_EXCEPTIONS[style + letter];
      if (known) return known;
      if (/[A-Z]/.test(letter)) return String.fromCodePoint(bases[0] + letter.charCodeAt(0) - 65);
      if (/[a-z]/.test(letter)) return String.fromCodePoint(bases[1] + letter.charCodeAt(0) - 97);
      return letter;
    })
    .join("");
}

function restyle(part: MathNode, style: string): MathNode {
  return {
    ...part,
    // An identifier of one character would be drawn in italics again.
    ...(part.tag === "mi" && { attributes: { mathvariant: "normal" } }),
    children: part.children.map((child) =>
      typeof child === "string" ? styled(child, style) : restyle(child, style),
    ),
  };
}

class Unreadable extends Error {}

class Reader {
  #at = 0;
  #depth = 0;
  constructor(readonly tokens: readonly Token[]) {}

  get #next(): Token | undefined {
    return this.tokens[this.#at];
  }
  #is(text: string, kind: Token["kind"] = "symbol"): boolean {
    return this.#next?.text === text && this.#next.kind === kind;
  }

  /** Everything up to one of the ends, which is left for the caller. */
  read(isEnd: () => boolean = () => false): MathNode[] {
    if (++this.#depth > DEPTH_MAX) throw new Unreadable();
    const parts: MathNode[] = [];
    while (this.#next && !isEnd()) {
      const base = this.#atom();
      if (base) parts.push(this.#scripts(base));
    }
    this.#depth--;
    return parts;
  }

  #argument(): MathNode {
    if (this.#is("{")) {
      this.#at++;
      const inside = this.read(() => this.#is("}"));
      this.#expect("}");
      return row(inside);
    }
    return this.#atom() ?? node("mrow", []);
  }

  #expect(text: string): void {
    if (!this.#is(text)) throw new Unreadable();
    this.#at++;
  }

  /** The plain text of an argument, for names and words. */
  #words(): string {
    this.#expect("{");
    let text = "";
    let open = 1;
    while (this.#next) {
      if (this.#is("{")) open++;
      if (this.#is("}") && --open === 0) break;
      text += this.#next.kind === "command" && this.#next.text === " " ? " " : this.#next.text;
      this.#at++;
    }
    this.#expect("}");
    return text;
  }

  #scripts(base: MathNode): MathNode {
    let below: MathNode | null = null;
    let above: MathNode | null = null;
    let primes = "";
    for (;;) {
      if (this.#is("_") && !below) {
        this.#at++;
        below = this.#argument();
      } else if (this.#is("^") && !above) {
        this.#at++;
        above = this.#argument();
      } else if (this.#is("'")) {
        this.#at++;
        primes += "′";
      } else break;
    }
    if (primes) above = above ? row([node("mo", [primes]), above]) : node("mo", [primes]);
    if (!below && !above) return base;
    const stands = base.attributes?.movablelimits !== undefined;
    const names = stands ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return node(names[2]!, [base, below, above]);
    return below ? node(names[0]!, [base, below]) : node(names[1]!, [base, above!]);
  }

  #atom(): MathNode | null {
    const token = this.#next;
    if (!token) return null;
    if (token.kind === "symbol" && token.text === "{") return this.#argument();
    this.#at++;
    if (token.kind === "number") return node("mn", [token.text]);
    if (token.kind === "letter") return node("mi", [token.text]);
    if (token.kind === "command") return this.#command(token.text);
    if (token.text === "^" || token.text === "_") {
      this.#at--;
      return this.#scripts(node("mrow", []));
    }
    if (token.text === "&" || token.text === "}") return null;
    if (token.text === "~") return node("mspace", [], { width: "0.25em" });
    return node("mo", [token.text === "-" ? "−" : token.text]);
  }

  #command(name: string): MathNode | null {
    if (LETTERS[name]) return node("mi", [LETTERS[name]]);
    if (OPERATORS[name]) return node("mo", [OPERATORS[name]]);
    if (LARGE[name]) return node("mo", [LARGE[name]], { movablelimits: "false", largeop: "true" });
    if (INTEGRALS[name]) return node("mo", [INTEGRALS[name]], { largeop: "true" });
    if (SPACES[name]) return node("mspace", [], { width: SPACES[name] });
    if (ACCENTS[name])
      return node("mover", [this.#argument(), node("mo", [ACCENTS[name]])], { accent: "true" });
    if (STYLES[name]) return restyle(this.#argument(), STYLES[name]);
    if (NOTHING.has(name) || /^(big|Big|bigg|Bigg)[lr]?$/.test(name)) return null;
    if (FUNCTIONS.has(name)) return this.#function(name);
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return node("mfrac", [this.#argument(), this.#argument()]);
      case "binom":
        return row([
          node("mo", ["("]),
          node("mfrac", [this.#argument(), this.#argument()], { linethickness: "0" }),
          node("mo", [")"]),
        ]);
      case "sqrt":
        return this.#root();
      case "text":
      case "textbf":
      case "textit":
      case "mbox":
        return node("mtext", [this.#words()]);
      case "mathrm":
        return node("mi", [this.#words()], { mathvariant: "normal" });
      case "operatorname":
      case "operatorname*":
        return this.#function(this.#words());
      case "underbrace":
        return node("munder", [this.#argument(), node("mo", ["⏟"])], { movablelimits: "false" });
      case "overbrace":
        return node("mover", [this.#argument(), node("mo", ["⏞"])], { movablelimits: "false" });
      case "boxed":
        return node("mrow", [this.#argument()], { class: "boxed" });
      case "not":
        return this.#negated();
      case "left":
        return this.#fenced();
      case "begin":
        return this.#environment(this.#words());
      default:
        throw new Unreadable();
    }
  }

  #function(name: string): MathNode {
    const attributes: Record<string, string> = LIMITS.has(name) ? { movablelimits: "false" } : {};
    return node("mi", [name], { mathvariant: "normal", ...attributes });
  }

  #negated(): MathNode {
    const part = this.#atom();
    const sign = part?.children[0];
    if (typeof sign !== "string") throw new Unreadable();
    return node("mo", [`${sign}\u0338`]);
  }

  #root(): MathNode {
    if (!this.#is("[")) return node("msqrt", [this.#argument()]);
    this.#at++;
    const degree = this.read(() => this.#is("]"));
    this.#expect("]");
    return node("mroot", [this.#argument(), row(degree)]);
  }

  #delimiter(): string {
    const token = this.#next;
    if (!token) throw new Unreadable();
    this.#at++;
    if (token.kind === "command") return OPERATORS[token.text] ?? token.text;
    return token.text === "." ? "" : token.text;
  }

  #fenced(): MathNode {
    const open = this.#delimiter();
    const inside = this.read(() => this.#is("right", "command"));
    if (!this.#next) throw new Unreadable();
    this.#at++;
    const close = this.#delimiter();
    const fence = (text: string) => node("mo", [text], { stretchy: "true", fence: "true" });
    return node("mrow", [...(open ? [fence(open)] : []), ...inside, ...(close ? [fence(close)] : [])]);
  }

  #environment(name: string): MathNode {
    const plain = name.replace("*", "");
    if (plain === "array" && this.#is("{")) this.#words();
    const rows: MathNode[] = [];
    let cells: MathNode[] = [];
    const endsCell = () =>
      this.#is("&") || this.#is("\\", "command") || this.#is("end", "command") || this.#is("cr", "command");
    while (this.#next) {
      cells.push(node("mtd", this.read(endsCell)));
      if (this.#is("&")) {
        this.#at++;
        continue;
      }
      rows.push(node("mtr", cells));
      cells = [];
      if (this.#is("end", "command")) break;
      this.#at++;
    }
    if (!this.#next) throw new Unreadable();
    this.#at++;
    this.#words();
    const isAligned = ["align", "aligned", "gather", "gathered", "split"].includes(plain);
    const table = node("mtable", rows, {
      class: isAligned ? "aligned" : plain === "cases" ? "cases" : "matrix",
    });
    const fences: Readonly<Record<string, readonly [string, string]>> = {
      pmatrix: ["(", ")"],
      bmatrix: ["[", "]"],
      Bmatrix: ["{", "}"],
      vmatrix: ["|", "|"],
      Vmatrix: ["‖", "‖"],
      cases: ["{", ""],
    };
    const [open, close] = fences[plain] ?? ["", ""];
    const fence = (text: string) => node("mo", [text], { stretchy: "true", fence: "true" });
    return node("mrow", [...(open ? [fence(open)] : []), table, ...(close ? [fence(close)] : [])]);
  }
}

/** Null for what is not understood: then the source is shown as it is. */
export function parseMath(tex: string): MathNode[] | null {
  if (tex.length > LENGTH_MAX) return null;
  try {
    return new Reader(tokensOf(tex)).read();
  } catch (error) {
    if (error instanceof Unreadable) return null;
    throw error;
  }
}
