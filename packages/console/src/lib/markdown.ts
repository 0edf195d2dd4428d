import { Lexer, Marked, type MarkedToken, type Token } from "marked";

/** A piece of Markdown. It is drawn as elements and never as HTML, so nothing in it can run. */
export type MarkdownToken = MarkedToken | { type: "math"; raw: string; text: string; block: boolean };

/**
 * What is longer is shown as it was written: the parser's time grows with the square of some texts, and an answer is
 * parsed again with every piece that arrives.
 */
const SECTION_LENGTH_MAX = 30_000;
const PARAGRAPH_LENGTH_MAX = 4_000;
const DEPTH_MAX = 24;

const BLOCK_FORMULA = /^ {0,3}(?:\$\$([^$]*?)(?:\$\$|$)|\\\[([\s\S]*?)(?:\\\]|$))[^\S\n]*(?:\n+|$)/;
/** A lone dollar sign is money: a formula begins and ends without a space, and no digit follows it. */
const INLINE_FORMULA = /^(?:\\\(([\s\S]+?)\\\)|\$\$([^$]+?)\$\$|\$(?!\s)([^$\n]+?)(?<![\s\\])\$(?!\d))/;
const NESTED_TOO_DEEP = new RegExp(String.raw`^(?: {0,3}(?:>|[-*+] |\d{1,9}[.)] )){${DEPTH_MAX}}`);
const COLUMNS_TOO_MANY = /^(?:[^\n|]*\|){32}/;

const formula = (match: RegExpExecArray | null, block: boolean) =>
  match
    ? { type: "math", raw: match[0], text: (match[1] ?? match[2] ?? match[3] ?? "").trim(), block }
    : undefined;
const asText = (raw: string): MarkdownToken => ({ type: "text", raw, text: raw });

const marked = new Marked({
  extensions: [
    {
      name: "block-math",
      level: "block",
      start: (rest) => /\n {0,3}(?:\$\$|\\\[)/.exec(rest.split("\n\n", 1)[0]!)?.index,
      tokenizer: (rest) => formula(BLOCK_FORMULA.exec(rest), true),
    },
    {
      name: "inline-math",
      level: "inline",
      start: (rest) => /\$|\\\(/.exec(rest)?.index,
      tokenizer: (rest) => formula(INLINE_FORMULA.exec(rest), false),
    },
  ],
  // False: as usual. Undefined: it is text.
  tokenizer: {
    html: (rest) => (/^ {0,3}<!--/.test(rest) ? false : undefined),
    tag: (rest) => (/^<br *\/?>/i.test(rest) ? false : undefined),
    blockquote: (rest) => (NESTED_TOO_DEEP.test(rest) ? undefined : false),
    list: (rest) => (NESTED_TOO_DEEP.test(rest) ? undefined : false),
    // Each row is filled up to the width of the first.
    table: (rest) => (COLUMNS_TOO_MANY.test(rest) ? undefined : false),
  },
});

class BoundedLexer extends Lexer {
  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    if (text.length <= PARAGRAPH_LENGTH_MAX) return super.inlineTokens(text, tokens);
    tokens.push(asText(text));
    return tokens;
  }
}

const OPENS = /^ {0,3}(`{3,}|~{3,}|\$\$(?!.*\$\$)|\\\[(?!.*\\\]))/;
const CONTINUES = /^(?:\s|>|[-*+] |\d{1,9}[.)] |$)/;

/** Parts that parse alone to what they parse to together, so that only the last part of a growing text changes. */
export function sectionsOf(text: string): string[] {
  const sections: string[] = [];
  let from = 0;
  let at = 0;
  let close: string | null = null;
  let afterBlank = false;
  for (const line of text.split("\n")) {
    if (close) {
      if (line.trim().startsWith(close) || (close.length === 2 && line.includes(close))) close = null;
    } else {
      if (afterBlank && !CONTINUES.test(line)) {
        sections.push(text.slice(from, at));
        from = at;
      }
      const open = OPENS.exec(line)?.[1];
      if (open) close = open === "\\[" ? "\\]" : open;
    }
    afterBlank = line.trim() === "";
    at += line.length + 1;
  }
  sections.push(text.slice(from));
  return sections;
}

function flattened(tokens: readonly Token[], depth = 0): MarkdownToken[] {
  return (tokens as MarkdownToken[]).map((token) => {
    if (depth >= DEPTH_MAX) return asText(token.raw);
    if ("tokens" in token && token.tokens) token.tokens = flattened(token.tokens, depth + 1) as Token[];
    if (token.type === "list")
      for (const item of token.items) item.tokens = flattened(item.tokens, depth + 1) as Token[];
    return token;
  });
}

/** Pictures that a model made travel inside its answer, and are too long for the parser. */
const PICTURE = /\((data:image\/(?:png|jpeg|gif|webp|avif);base64,[\w+/=]+)\)/g;

function parseSection(section: string): MarkdownToken[] {
  const pictures: string[] = [];
  const short = section.replace(PICTURE, (_, data: string) => `(data:${pictures.push(data) - 1})`);
  if (short.length > SECTION_LENGTH_MAX && !/^(```|~~~)/.test(short)) return [asText(section)];
  const tokens = new BoundedLexer(marked.defaults).lex(short);
  marked.walkTokens(tokens, (token) => {
    const picture = token.type === "image" && /^data:(\d+)$/.exec(token.href);
    if (picture) token.href = pictures[Number(picture[1])] ?? "";
  });
  return flattened(tokens);
}

export const parseMarkdown = (text: string): MarkdownToken[] => sectionsOf(text).flatMap(parseSection);

export const parseInline = (text: string): Token[] => new BoundedLexer(marked.defaults).inlineTokens(text);

/** The words of a line without their marks. */
export const plainText = (tokens: readonly Token[]): string =>
  tokens
    .map((token) =>
      "tokens" in token && token.tokens ? plainText(token.tokens) : "text" in token ? token.text : "",
    )
    .join("");

/** A heading's id as the hosts of repositories make it, so that links work in both places. */
export const headingId = (tokens: readonly Token[]): string =>
  plainText(tokens)
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
