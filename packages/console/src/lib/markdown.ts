/** Markdown as data: what the documentation and model answers use of it, and nothing that could run. */
export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "em"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] }
  | { kind: "image"; href: string; text: string };

export type Block =
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "list"; ordered: boolean; items: Block[][] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const INLINE =
  /(`+)([\s\S]*?)\1|\*\*([\s\S]+?)\*\*|\*([^\s*][^*]*?)\*|(!?)\[([^\]]*)\]\(([^)\s]+)[^)]*\)|(https?:\/\/[^\s<>)]+)/;

export function parseInline(text: string): Inline[] {
  const parts: Inline[] = [];
  let rest = text;
  while (rest) {
    const match = INLINE.exec(rest);
    if (!match) break;
    if (match.index > 0) parts.push({ kind: "text", text: rest.slice(0, match.index) });
    const [whole, , code, strong, em, bang, label, href, bare] = match;
    if (code !== undefined) parts.push({ kind: "code", text: code });
    else if (strong !== undefined) parts.push({ kind: "strong", children: parseInline(strong) });
    else if (em !== undefined) parts.push({ kind: "em", children: parseInline(em) });
    else if (href !== undefined && bang) parts.push({ kind: "image", href, text: label ?? "" });
    else if (href !== undefined) parts.push({ kind: "link", href, children: parseInline(label ?? href) });
    else if (bare !== undefined)
      parts.push({ kind: "link", href: bare, children: [{ kind: "text", text: bare }] });
    rest = rest.slice(match.index + whole.length);
  }
  if (rest) parts.push({ kind: "text", text: rest });
  return parts;
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
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
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || /^\s*>/.test(line);

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
  return { kind: "list", ordered, items };
}

export function parseMarkdown(text: string): Block[] {
  const lines = new Lines(text.replaceAll("\r\n", "\n").split("\n"));
  const blocks: Block[] = [];
  while (lines.line !== undefined) {
    const line = lines.line;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (line.trim() === "" || REMARK.test(line)) lines.at++;
    else if (fence) blocks.push(takeCode(lines, fence));
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
