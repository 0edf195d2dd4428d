/** CSS counters: the numbers that stylesheets generate. The browser does not tell them to scripts, so they are counted here. */
import type { Dom } from "./dom.ts";

interface Scope {
  /** The element whose children share the counter; it ends with them. */
  parent: Element | null;
  value: number;
}

type Values = Map<string, Scope[]>;

export interface CounterUse {
  element: Element;
  pseudo: string;
  /** What stands between the brackets of counter() or counters(). */
  args: string;
  isNested: boolean;
}

export function createCounters(dom: Dom) {
  /** Counting looks at the styles of every element, three times each. */
  const elementsMax = 10_000;
  const depthMax = 500;
  const listItem = "list-item";
  /** Values of all counters at each place whose content uses one, as "::before" of an element. */
  let places: Map<Element, Map<string, Map<string, number[]>>> | null = null;
  dom.onReset(() => {
    places = null;
  });

  function pairsOf(text: string, standard: number): [string, number][] {
    if (!text || text === "none") return [];
    const words = text.split(/\s+/);
    const pairs: [string, number][] = [];
    for (let at = 0; at < words.length; ) {
      const name = words[at++]!;
      const isNumber = /^[-+]?\d+$/.test(words[at] ?? "");
      pairs.push([name, isNumber ? Number(words[at++]) : standard]);
    }
    return pairs;
  }

  function count(): NonNullable<typeof places> {
    const found: NonNullable<typeof places> = new Map();
    const values: Values = new Map();
    let seen = 0;

    function open(name: string, parent: Element | null, value: number): void {
      const scopes = values.get(name) ?? [];
      // A counter that is reset among siblings replaces the one before.
      if (scopes.at(-1)?.parent === parent) scopes.pop();
      scopes.push({ parent, value });
      values.set(name, scopes);
    }

    function change(name: string, parent: Element | null, update: (value: number) => number): void {
      if (!values.get(name)?.length) open(name, parent, 0);
      const scope = values.get(name)!.at(-1)!;
      scope.value = update(scope.value);
    }

    function apply(style: CSSStyleDeclaration, parent: Element | null): void {
      for (const [name, value] of pairsOf(style.counterReset, 0))
        open(name.replace(/^reversed\((.*)\)$/, "$1"), parent, value);
      for (const [name, step] of pairsOf(style.counterIncrement, 1))
        change(name, parent, (value) => value + step);
      for (const [name, value] of pairsOf(style.counterSet, 0)) change(name, parent, () => value);
    }

    /** Lists count their items without saying so in their style. */
    function applyList(element: Element, display: string): void {
      const parent = dom.parentOf(element);
      if (element instanceof HTMLOListElement) open(listItem, parent, element.start - 1);
      else if (/^(ul|menu|dir)$/.test(element.localName)) open(listItem, parent, 0);
      if (display !== "list-item" || element.localName === "summary") return;
      const isGiven = element instanceof HTMLLIElement && element.hasAttribute("value");
      change(listItem, parent, (value) => (isGiven ? (element as HTMLLIElement).value : value + 1));
    }

    function remember(element: Element, pseudo: string): void {
      const now = new Map([...values].map(([name, scopes]) => [name, scopes.map(({ value }) => value)]));
      const here = found.get(element) ?? new Map<string, Map<string, number[]>>();
      here.set(pseudo, now);
      found.set(element, here);
    }

    function visitPseudo(element: Element, pseudo: "::before" | "::after"): void {
      const style = getComputedStyle(element, pseudo);
      if (!style.content || style.content === "none" || style.content === "normal") return;
      if (style.display === "none") return;
      apply(style, element);
      if (style.content.includes("counter")) remember(element, pseudo);
    }

    function visit(element: Element, depth: number): void {
      if (++seen > elementsMax || depth > depthMax) return;
      const style = dom.styleOf(element);
      if (style.display === "none") return;
      applyList(element, style.display);
      apply(style, dom.parentOf(element));
      if (style.display === "list-item") remember(element, "::marker");
      visitPseudo(element, "::before");
      for (const child of dom.childrenOf(element)) if (child instanceof Element) visit(child, depth + 1);
      visitPseudo(element, "::after");
      for (const scopes of values.values()) while (scopes.at(-1)?.parent === element) scopes.pop();
    }
    visit(document.documentElement, 0);
    return found;
  }

  const roman = "1000 m 900 cm 500 d 400 cd 100 c 90 xc 50 l 40 xl 10 x 9 ix 5 v 4 iv 1 i";

  function inRoman(value: number): string {
    let rest = value;
    let text = "";
    for (const [, size, letters] of roman.matchAll(/(\d+) (\w+)/g))
      for (; rest >= Number(size); rest -= Number(size)) text += letters;
    return text;
  }

  function inLetters(value: number, first: string, letters: number): string {
    let text = "";
    for (let rest = value; rest > 0; rest = Math.floor((rest - 1) / letters))
      text = String.fromCharCode(first.charCodeAt(0) + ((rest - 1) % letters)) + text;
    return text;
  }

  const bullets: Record<string, string> = { disc: "•", circle: "◦", square: "▪", none: "" };

  /** Styles that are not known here, the author's own among them, are written as plain numbers. */
  function written(value: number, style: string): string {
    if (bullets[style] !== undefined) return bullets[style];
    const isUpper = style.startsWith("upper-");
    const kind = style.replace(/^(upper|lower)-/, "");
    let text = String(value);
    if (style === "decimal-leading-zero") text = text.padStart(2, "0");
    else if (kind === "roman" && value > 0 && value < 4_000) text = inRoman(value);
    else if ((kind === "alpha" || kind === "latin") && value > 0) text = inLetters(value, "a", 26);
    else if (kind === "greek" && value > 0 && value < 18) text = inLetters(value, "α", 24);
    return isUpper ? text.toUpperCase() : text;
  }

  function valuesAt(element: Element, pseudo: string, name: string): number[] {
    places ??= count();
    return places.get(element)?.get(pseudo)?.get(name) ?? [];
  }

  function textOf({ element, pseudo, args, isNested }: CounterUse): string {
    const parts = /^\s*([^\s,]+)\s*(?:,\s*"((?:[^"\\]|\\.)*)")?\s*(?:,\s*([\w-]+)\s*)?$/.exec(args);
    if (!parts) return "";
    const values = valuesAt(element, pseudo, parts[1]!);
    const style = parts[3] ?? "decimal";
    if (isNested) return values.map((value) => written(value, style)).join(parts[2] ?? "");
    return written(values.at(-1) ?? 0, style);
  }

  /** "• ", "1. " and the like; the triangles of <summary> say nothing that its state does not. */
  function listMarker(element: Element, type: string): string {
    if (type.startsWith("disclosure-") || type === "none") return "";
    if (bullets[type] !== undefined) return `${bullets[type]} `;
    return `${written(valuesAt(element, "::marker", listItem).at(-1) ?? 0, type)}. `;
  }

  return { textOf, listMarker };
}

export type Counters = ReturnType<typeof createCounters>;
