import hljs from "highlight.js/lib/common";

export interface CodeToken {
  /** Of what colour; null: of the text's. */
  kind: "comment" | "string" | "number" | "keyword" | "name" | null;
  text: string;
}

interface Scope {
  scope?: string;
  children: (Scope | string)[];
}

/** Longer code is shown without colours: painting it would hold up the page. */
const LENGTH_MAX = 60_000;

const KINDS: Readonly<Record<string, CodeToken["kind"]>> = {
  comment: "comment",
  quote: "comment",
  string: "string",
  regexp: "string",
  addition: "string",
  number: "number",
  symbol: "number",
  deletion: "number",
  keyword: "keyword",
  literal: "keyword",
  built_in: "keyword",
  type: "keyword",
  meta: "keyword",
  title: "name",
  name: "name",
  attr: "name",
  attribute: "name",
  property: "name",
  variable: "name",
  section: "name",
  "selector-class": "name",
  "selector-id": "name",
  "selector-tag": "name",
};

function* tokensOf({ scope = "", children }: Scope, outer: CodeToken["kind"] = null): Iterable<CodeToken> {
  const kind = KINDS[scope.split(".")[0]!] ?? outer;
  for (const child of children)
    if (typeof child === "string") yield { kind, text: child };
    else yield* tokensOf(child, kind);
}

export function highlight(text: string, language: string): CodeToken[] {
  if (!hljs.getLanguage(language) || text.length > LENGTH_MAX) return [{ kind: null, text }];
  const { _emitter } = hljs.highlight(text, { language, ignoreIllegals: true });
  return [...tokensOf((_emitter as unknown as { rootNode: Scope }).rootNode)];
}
