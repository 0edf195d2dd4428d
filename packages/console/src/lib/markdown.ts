/** Markdown as data: what the documentation and model answers use of it, and nothing that could run. */
export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "math"; text: string }
  | { kind: "strong" | "em" | "del"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] }
  | { kind: "image"; href: string; text: string };

export type Block =
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "math"; text: string }
  | { kind: "list"; ordered: boolean; start: number; items: Block[][] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

/** A lone dollar sign is money: a formula begins and ends without a space, and no digit follows it. */
const DOLLARS = String.raw`\$\$(?<wide>[^$]+?)\$\$|\$(?!\s)(?<math>[^$\n]+?)(?<![\s\\])\$(?!\d)`;
const INLINE = new RegExp(
  [
    "(?<ticks>`+)(?<code>[\\s\\S]*?)\\k<ticks>",
    String.raw`\\\((?<paren>[\s\S]+?)\\\)`,
    DOLLARS,
    String.raw`\*\*(?<strong>[\s\S]+?)\*\*`,
    String.raw`\*(?<em>[^\s*][^*]*?)\*`,
    "~~(?<del>[^~]+?)~~",
    String.raw`(?<bang>!?)\[(?<label>[^\]]*)\]\((?<href>[^)\s]+)[^)]*\)`,
    String.raw`(?<bare>https?:\/\/[^\s<>)]+)`,
  ].join("|"),
);

function inlineOf(groups: Record<string, string | undefined>): Inline {
  const { code, strong, em, del, bang, label, href, bare } = groups;
  const math = groups.paren ?? groups.wide ?? groups.math;
  if (code !== undefined) return { kind: "code", text: code };
  if (math !== undefined) return { kind: "math", text: math };
  if (strong !== undefined) return { kind: "strong", children: parseInline(strong) };
  if (em !== undefined) return { kind: "em", children: parseInline(em) };
  if (del !== undefined) return { kind: "del", children: parseInline(del) };
  if (href !== undefined && bang) return { kind: "image", href, text: label ?? "" };
  if (href !== undefined) return { kind: "link", href, children: parseInline(label ?? href) };
  return { kind: "link", href: bare!, children: [{ kind: "text", text: bare! }] };
}

export function parseInline(text: string): Inline[] {
  const parts: Inline[] = [];
  let rest = text;
  while (rest) {
    const match = INLINE.exec(rest);
    if (!match) break;
    if (match.index > 0) parts.push({ kind: "text", text: rest.slice(0, match.index) });
    parts.push(inlineOf(match.groups!));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest) parts.push({ kind: "text", text: rest });
  return parts;
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const FORMULA = /^\s*(\$\$|\\\[)/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
/** A remark for those who write the text, alone on its line. */
const REMARK = /^\s*<!--.*-->\s*$/;
const DIVIDER = /^\s*\|?[\s:|-]+\|[\s:|-]*$/;

const cellsOf = (line: string): Inline[][] =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => parseInline(cell.trim().replaceAll("\\|", "|")));

const beginsBlock = (line: string) =>
  FENCE.test(line) ||
  FORMULA.test(line) ||
  HEADING.test(line) ||
  RULE.test(line) ||
  ITEM.test(line) ||
  /^\s*>/.test(line);

class Lines {
  at = 0;
  constructor(readonly lines: readonly string[]) {}
  get line(): string | undefined {
    return this.lines[this.at];
  }
  takeWhile(wanted: (line: string) => boolean): string[] {
    const from = this.at;
    while (this.line !== undefined && wanted(this.line)) this.at++;
    return this.lines.slice(from, this.at);
  }
}

function takeCode(lines: Lines, [, fence, language]: RegExpExecArray): Block {
  lines.at++;
  const body = lines.takeWhile((line) => !line.trim().startsWith(fence!));
  lines.at++;
  return { kind: "code", language: language ?? "", text: body.join("\n") };
}

/** A formula on lines of its own; one that is still being written goes to the end. */
function takeFormula(lines: Lines, [, open]: RegExpExecArray): Block {
  const close = open === "$$" ? "$$" : "\\]";
  const text: string[] = [];
  let line = lines.line!.trim().slice(open!.length);
  while (!line.includes(close)) {
    text.push(line);
    lines.at++;
    if (lines.line === undefined) return { kind: "math", text: text.join("\n") };
    line = lines.line;
  }
  text.push(line.slice(0, line.indexOf(close)));
  lines.at++;
  return { kind: "math", text: text.join("\n").trim() };
}

function takeList(lines: Lines, first: RegExpExecArray): Block {
  const indent = first[1]!.length;
  const ordered = /\d/.test(first[2]!);
  const items: Block[][] = [];
  while (lines.line !== undefined) {
    const match = ITEM.exec(lines.line);
    if (!match || match[1]!.length !== indent || /\d/.test(match[2]!) !== ordered) break;
    lines.at++;
    const inside = lines.takeWhile((line) => line.search(/\S/) > indent);
    items.push(parseMarkdown([match[3]!, ...inside.map((line) => line.replace(/^\s{1,4}/, ""))].join("\n")));
    if (lines.line?.trim() === "" && ITEM.test(lines.lines[lines.at + 1] ?? "")) lines.at++;
  }
  return { kind: "list", ordered, start: ordered ? Number.parseInt(first[2]!, 10) : 1, items };
}

export function parseMarkdown(text: string): Block[] {
  const lines = new Lines(text.replaceAll("\r\n", "\n").split("\n"));
  const blocks: Block[] = [];
  while (lines.line !== undefined) {
    const line = lines.line;
    const fence = FENCE.exec(line);
    const formula = FORMULA.exec(line);
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (line.trim() === "" || REMARK.test(line)) lines.at++;
    else if (fence) blocks.push(takeCode(lines, fence));
    else if (formula) blocks.push(takeFormula(lines, formula));
    else if (heading) {
      blocks.push({ kind: "heading", level: heading[1]!.length, children: parseInline(heading[2]!) });
      lines.at++;
    } else if (RULE.test(line)) {
      blocks.push({ kind: "rule" });
      lines.at++;
    } else if (item) blocks.push(takeList(lines, item));
    else if (/^\s*>/.test(line)) {
      const quoted = lines
        .takeWhile((next) => /^\s*>/.test(next))
        .map((next) => next.replace(/^\s*>\s?/, ""));
      blocks.push({ kind: "quote", blocks: parseMarkdown(quoted.join("\n")) });
    } else if (line.includes("|") && DIVIDER.test(lines.lines[lines.at + 1] ?? "")) {
      const [head, , ...rows] = lines.takeWhile((next) => next.includes("|"));
      blocks.push({ kind: "table", head: cellsOf(head!), rows: rows.map(cellsOf) });
    } else {
      lines.at++;
      const more = lines.takeWhile((next) => next.trim() !== "" && !beginsBlock(next));
      blocks.push({ kind: "paragraph", children: parseInline([line, ...more].join("\n").trim()) });
    }
  }
  return blocks;
}

/** The words of a line without their marks. */
export const plainText = (parts: readonly Inline[]): string =>
  parts.map((part) => ("text" in part ? part.text : plainText(part.children))).join("");

/** A heading's id as the hosts of repositories make it, so that links work in both places. */
export const headingId = (parts: readonly Inline[]): string =>
  plainText(parts)
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
