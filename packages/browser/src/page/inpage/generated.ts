/** Text that a stylesheet adds or changes: generated content with its alternative text, list markers, upper case. */
import type { Counters } from "./counters.ts";
import type { Dom } from "./dom.ts";

export type Pseudo = "::before" | "::after" | "::marker";

export function createGenerated(dom: Dom, counters: Counters) {
  /** Rules are read again only when a sheet has got more or fewer of them. */
  const knownSheets = new WeakMap<CSSStyleSheet, { rules: number; generates: boolean }>();
  let hasGenerated: boolean | null = null;
  dom.onReset(() => {
    hasGenerated = null;
  });

  function sheetGenerates(sheet: CSSStyleSheet): boolean {
    let rules: CSSRuleList;
    try {
      rules = sheet.cssRules;
    } catch {
      // A sheet from elsewhere cannot be read.
      return true;
    }
    const known = knownSheets.get(sheet);
    if (known?.rules === rules.length) return known.generates;
    const generates = [...rules].some((rule) =>
      rule instanceof CSSImportRule
        ? rule.styleSheet !== null && sheetGenerates(rule.styleSheet)
        : /:(before|after)\b/.test(rule.cssText),
    );
    knownSheets.set(sheet, { rules: rules.length, generates });
    return generates;
  }

  /** Most documents generate no text, and finding that out once saves two style look-ups for each element. */
  function documentGenerates(): boolean {
    hasGenerated ??= [...document.styleSheets, ...document.adoptedStyleSheets].some(sheetGenerates);
    return hasGenerated;
  }

  function mayGenerate(element: Element): boolean {
    if (documentGenerates() || element.localName === "q") return true;
    // Shadow trees bring their own sheets, which are not looked through.
    return dom.hasShadow() && element.getRootNode() !== document;
  }

  const unescaped = (text: string) =>
    text.replace(/\\(?:([0-9a-f]{1,6})\s?|(.))/gi, (_, hex: string | undefined, char: string) =>
      hex ? String.fromCodePoint(Number.parseInt(hex, 16)) : char,
    );

  /** One part of a `content` value. Pictures and gradients match the last alternative and have no text. */
  const partPattern =
    /^\s*(?:"((?:[^"\\]|\\.)*)"|(counters?)\(([^()]*)\)|attr\(\s*([\w-]+)[^()]*\)|(no-)?(open|close)-quote|[\w-]+\((?:"(?:[^"\\]|\\.)*"|\([^()]*\)|[^()"])*\)|[\w-]+)/;

  function quoteMark(element: Element, isOpening: boolean): string {
    let depth = 0;
    for (let at = dom.parentOf(element); at; at = dom.parentOf(at)) if (at.localName === "q") depth++;
    const given = [...dom.styleOf(element).quotes.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map((one) =>
      unescaped(one[1]!),
    );
    const marks = given.length >= 2 ? given : ["“", "”", "‘", "’"];
    const pair = Math.min(depth, marks.length / 2 - 1) * 2;
    return marks[pair + (isOpening ? 0 : 1)] ?? "";
  }

  interface ContentPlace {
    element: Element;
    pseudo: Pseudo;
  }

  function textOf(source: string, { element, pseudo }: ContentPlace): string {
    let text = "";
    for (let rest = source; rest.trim(); ) {
      const part = partPattern.exec(rest);
      if (!part) return text;
      const [whole, quoted, counter, counterArgs, attribute, isSilent, quote] = part;
      if (quoted !== undefined) text += unescaped(quoted);
      else if (counter)
        text += counters.textOf({ element, pseudo, args: counterArgs!, isNested: counter === "counters" });
      else if (attribute) text += element.getAttribute(attribute) ?? "";
      else if (quote && !isSilent) text += quoteMark(element, quote === "open");
      rest = rest.slice(whole.length);
    }
    return text;
  }

  /** What follows the slash is read instead of what is shown, as a word of its own like the text of a picture. */
  function contentText(content: string, place: ContentPlace): string {
    const slash = /^((?:"(?:[^"\\]|\\.)*"|[^"/])*)\/(.*)$/s.exec(content);
    return slash ? ` ${textOf(slash[2]!, place)} ` : textOf(content, place);
  }

  const known = {
    "::before": dom.memo((element) => readCssText(element, "::before")),
    "::after": dom.memo((element) => readCssText(element, "::after")),
  };

  /** An element's generated text goes into its own line and into the names of those around it. */
  const cssText = (element: Element, pseudo: "::before" | "::after") =>
    mayGenerate(element) ? known[pseudo](element) : "";

  function readCssText(element: Element, pseudo: "::before" | "::after"): string {
    const style = getComputedStyle(element, pseudo);
    const { content } = style;
    if (!content || content === "none" || content === "normal") return "";
    if (style.display === "none" || style.visibility === "hidden") return "";
    const text = contentText(content, { element, pseudo });
    return style.display === "inline" ? text : ` ${text} `;
  }

  /** The bullet or number before a list item. */
  function markerText(element: Element): string {
    if (dom.displayOf(element) !== "list-item") return "";
    const { content } = getComputedStyle(element, "::marker");
    if (content && content !== "normal" && content !== "none")
      return contentText(content, { element, pseudo: "::marker" });
    const type = dom.styleOf(element).listStyleType;
    const given = /^"((?:[^"\\]|\\.)*)"$/.exec(type);
    if (given) return unescaped(given[1]!);
    return counters.listMarker(element, type);
  }

  function capitalized(text: string): string {
    return text.replace(
      /(^|[^\p{L}\p{N}\p{M}'’])(\p{L})/gu,
      (_, before: string, letter: string) => before + letter.toUpperCase(),
    );
  }

  const transformOf = dom.memo((element) => dom.styleOf(element).textTransform);

  /** A text as it is shown, where its element's style changes the case. */
  function shownText(text: Text): string {
    const parent = text.parentElement;
    const transform = parent ? transformOf(parent) : "none";
    if (transform === "none") return text.data;
    if (transform.includes("uppercase")) return text.data.toUpperCase();
    if (transform.includes("lowercase")) return text.data.toLowerCase();
    return transform.includes("capitalize") ? capitalized(text.data) : text.data;
  }

  return { cssText, markerText, shownText };
}

export type Generated = ReturnType<typeof createGenerated>;
