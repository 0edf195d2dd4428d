/** Colours for code, from a handful of rules a language family: enough to read by, small enough to send. */
export interface Token {
  kind: "plain" | "comment" | "string" | "number" | "keyword" | "name";
  text: string;
}

/** Longer code is shown without colours: painting it would hold up the page. */
const LENGTH_MAX = 60_000;

interface Family {
  comment: string;
  string: string;
  keywords: string;
  /** Words that stand out besides the keywords: tags, properties, calls. */
  name?: string;
  ignoreCase?: boolean;
}

const C_COMMENT = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH_COMMENT = String.raw`(?<![\w$&])#[^\n]*`;
const QUOTED = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const CALL = String.raw`[A-Za-z_$][\w$]*(?=\()`;

const FAMILIES = {
  script: {
    comment: C_COMMENT,
    string: `${QUOTED}|\`(?:\\\\.|[^\`\\\\])*\`?`,
    keywords:
      "as async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in infer instanceof interface is keyof let namespace new null of private protected public readonly return satisfies set static super switch this throw true try type typeof undefined var void while with yield",
    name: CALL,
  },
  c: {
    comment: C_COMMENT,
    string: QUOTED,
    keywords:
      "abstract as auto bool boolean break byte case catch chan char class const constexpr continue default defer delete do double else enum explicit export extends extern false final finally float fn for foreach from func function go goto if impl implements import in include inline instanceof int interface internal let long loop map match mod mut namespace new nil null nullptr operator override package private protected pub public range readonly return self short signed sizeof static string struct super switch template this throw throws trait true try type typedef typename union unsafe unsigned use using var virtual void volatile when where while yield",
    name: CALL,
  },
  python: {
    comment: HASH_COMMENT,
    string: `[fFrRbB]{0,2}(?:"""[\\s\\S]*?(?:"""|$)|'''[\\s\\S]*?(?:'''|$)|${QUOTED})`,
    keywords:
      "and as assert async await begin break case class continue def del do elif else elsif end ensure except False finally for from global if import in is lambda match module None nonlocal not or pass raise require rescue return self then True try unless until when while with yield",
    name: CALL,
  },
  shell: {
    comment: HASH_COMMENT,
    string: String.raw`"(?:\\.|[^"\\])*"?|'[^']*'?`,
    keywords:
      "alias case cd do done echo elif else esac eval exec exit export fi for function if in local return set source then unset until while",
    name: String.raw`\$\{?\w+\}?|(?<=\s)--?[a-zA-Z][\w-]*`,
  },
  sql: {
    comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
    string: `'(?:''|[^'])*'?|"[^"]*"?`,
    keywords:
      "add all alter and any as asc begin between by case cast check column commit constraint create cross database default delete desc distinct drop else end exists false foreign from full group having in index inner insert into is join key left like limit not null offset on or order outer primary references replace returning right rollback select set table then true union unique update using values view when where with",
    ignoreCase: true,
  },
  data: {
    comment: `${HASH_COMMENT}|${C_COMMENT}`,
    string: QUOTED,
    keywords: "false null true yes no on off",
    name: String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)|(?<=^|\n)\s*[\w.-]+(?=\s*[:=])`,
  },
  markup: {
    comment: String.raw`<!--[\s\S]*?(?:-->|$)`,
    string: QUOTED,
    keywords: "",
    name: String.raw`<\/?[A-Za-z][\w:-]*|\/?>`,
  },
  style: {
    comment: String.raw`\/\*[\s\S]*?(?:\*\/|$)`,
    string: QUOTED,
    keywords: "and important media not only supports",
    name: String.raw`[@.#]?[\w-]+(?=\s*[:{])|@[\w-]+`,
  },
} satisfies Record<string, Family>;

const LANGUAGES: Readonly<Record<string, keyof typeof FAMILIES>> = {
  js: "script",
  javascript: "script",
  jsx: "script",
  ts: "script",
  typescript: "script",
  tsx: "script",
  c: "c",
  "c++": "c",
  cpp: "c",
  cs: "c",
  csharp: "c",
  go: "c",
  java: "c",
  kotlin: "c",
  php: "c",
  rust: "c",
  scala: "c",
  swift: "c",
  py: "python",
  python: "python",
  rb: "python",
  ruby: "python",
  bash: "shell",
  console: "shell",
  curl: "shell",
  dockerfile: "shell",
  sh: "shell",
  shell: "shell",
  zsh: "shell",
  sql: "sql",
  ini: "data",
  json: "data",
  jsonc: "data",
  toml: "data",
  yaml: "data",
  yml: "data",
  html: "markup",
  svg: "markup",
  xml: "markup",
  css: "style",
  scss: "style",
};

const NUMBER = String.raw`(?<![\w$])(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w$])`;
const compiled = new Map<string, RegExp>();

function ruleOf(family: keyof typeof FAMILIES): RegExp {
  const known = compiled.get(family);
  if (known) return known;
  const { comment, string, keywords, name, ignoreCase }: Family = FAMILIES[family];
  const words = keywords ? String.raw`(?<![\w$.-])(?:${keywords.replaceAll(" ", "|")})(?![\w$-])` : "(?!)";
  // A property name may look like a string, so that it is tried before it.
  const names = family === "data" ? `(?<name>${name})|` : "";
  const rest = name && family !== "data" ? `|(?<name>${name})` : "";
  const rule = new RegExp(
    `${names}(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<keyword>${words})${rest}`,
    ignoreCase ? "gi" : "g",
  );
  compiled.set(family, rule);
  return rule;
}

export function highlight(text: string, language: string): Token[] {
  const family = LANGUAGES[language.toLowerCase()];
  if (!family || text.length > LENGTH_MAX) return [{ kind: "plain", text }];
  const tokens: Token[] = [];
  let at = 0;
  for (const match of text.matchAll(ruleOf(family))) {
    if (match[0] === "") continue;
    if (match.index > at) tokens.push({ kind: "plain", text: text.slice(at, match.index) });
    const kind = Object.entries(match.groups ?? {}).find(([, found]) => found !== undefined)?.[0];
    tokens.push({ kind: (kind ?? "plain") as Token["kind"], text: match[0] });
    at = match.index + match[0].length;
  }
  if (at < text.length) tokens.push({ kind: "plain", text: text.slice(at) });
  return tokens;
}
