/** The difference of two looks, as lines of the snapshot: `+` new, `~` changed, `-` gone. */
import type { AriaNode } from "./describe.ts";
import type { Dom } from "./dom.ts";
import type { Look, Looks, Part } from "./looks.ts";
import type { Momentary } from "./momentary.ts";
import type { Pairing } from "./pairing.ts";
import type { Render } from "./render.ts";

export interface Difference {
  lines: string[];
  /** Not all changes fit. */
  truncated: boolean;
  /** What the lines are about; null for the page itself. */
  told: Set<Element | null>;
}

interface CompareTools {
  dom: Dom;
  looks: Looks;
  pairing: Pairing;
  renderer: Render;
  momentary: Momentary;
}

export function createCompare({ dom, looks, pairing, renderer, momentary }: CompareTools) {
  const lineCharsMin = 60;
  const removedMax = 8;
  const removedCharsMax = 80;
  const elsewhereMax = 5;
  const elsewhereCharsMax = 600;
  const childrenShownMax = 30;

  const { textsOf, textOf, wordsOf, says } = looks;

  const withChildren = (node: AriaNode, children: AriaNode["children"]): AriaNode => ({
    ...node,
    children,
    unseen: undefined,
  });
  /** Its own line; what it looks like in the source has been told with it when it was new. */
  const alone = (node: AriaNode) => ({
    ...withChildren(node, textsOf(node)),
    active: false,
    hint: undefined,
  });
  const around = (node: AriaNode, nodes: AriaNode[]) =>
    withChildren(
      node,
      nodes.map((each) => ({ index: 0, node: each })),
    );
  const textNode = (node: AriaNode, text: string) =>
    withChildren({ ...node, role: "text", ref: null, name: "" }, [{ index: 0, node: text }]);

  function compare(old: Look, now: Look, charsMax: number): Difference {
    const lines: string[] = [];
    const told = new Set<Element | null>();
    let left = charsMax;
    let truncated = false;
    const pairs = pairing.pair(old, now);
    const kept = new Set(pairs.values());
    /** New parts that hold known ones. */
    const holding = new Set<Part>();
    for (const part of pairs.keys())
      for (let at = part.parent; at && !holding.has(at); at = at.parent) holding.add(at);

    function emit(sign: string, part: Part, node: AriaNode, limit = left): void {
      told.add(part.element);
      if (left < lineCharsMin) {
        truncated = true;
        return;
      }
      const options = { charsMax: Math.min(left, limit), depthMax: 0, boxes: false, indentChars: 2 };
      const rendered = renderer.render(around(now.top.node, [node]), options);
      truncated ||= rendered.truncated;
      for (const line of rendered.lines) lines.push(`${sign} ${line.replace(/^( *)- /, "$1")}`);
      left -= rendered.chars;
    }

    /** Whether parts that were there before are in their old order, and none has come from elsewhere. */
    function isInOrder(is: Part, was: Part): boolean {
      const places = new Map(was.parts.map((part, index) => [part, index]));
      let lastPlace = -1;
      for (const part of is.parts) {
        const before = pairs.get(part);
        if (!before) continue;
        const place = places.get(before);
        if (place === undefined) {
          // A plain wrapper comes and goes with the number of its children; that is not a move.
          if (before.parent && kept.has(before.parent)) return false;
          continue;
        }
        if (place < lastPlace) return false;
        lastPlace = place;
      }
      return true;
    }

    function tellOwn(part: Part, was: Part): void {
      if (part.element) {
        emit("~", part, alone(part.node));
        return;
      }
      // Text that stands in the page without an element of its own.
      const [before, after] = [was, part].map((each) => new Set(wordsOf(each))) as [Set<string>, Set<string>];
      for (const text of after) if (!before.has(text)) emit("+", part, textNode(part.node, text));
      for (const text of before) if (!after.has(text)) emit("-", part, textNode(part.node, text));
    }

    function visit(part: Part): void {
      const was = pairs.get(part);
      if (!was && !holding.has(part)) {
        // In a part of a large page, what moves up into that part is not new.
        if (!old.isPartial || momentary.isTouched(part.element!)) emit("+", part, part.node);
        return;
      }
      if (!was && says(part)) emit("+", part, alone(part.node));
      if (was && was.own !== part.own) tellOwn(part, was);
      if (was && !isInOrder(part, was)) {
        const shown = part.parts.slice(0, childrenShownMax).map(({ node }) => alone(node));
        emit("~", part, around(part.node, shown));
      }
      for (const each of part.parts) visit(each);
    }

    let words: string | null = null;

    /** What is still on the page may only have been merged with what is around it. */
    function isGone(was: Part): boolean {
      const element = was.element!;
      if (!element.isConnected || !dom.boxOf(element).visible) return true;
      if (now.isPartial) return false;
      words ??= textOf(now.top);
      return wordsOf(was).some((word) => word !== "" && !words!.includes(word));
    }

    function collectGone(was: Part, gone: Part[]): void {
      if (was.element && !kept.has(was) && says(was) && isGone(was)) gone.push(was);
      else for (const part of was.parts) collectGone(part, gone);
    }

    function tellGone(): void {
      const gone: Part[] = [];
      collectGone(old.top, gone);
      for (const was of gone.slice(0, removedMax)) {
        const node = { ...alone(was.node), ref: null };
        if (!node.name && node.children.length === 0 && was.parts.length > 0)
          node.children = [{ index: 0, node: textOf(was).slice(0, removedCharsMax) }];
        emit("-", was, node);
      }
      if (gone.length > removedMax) lines.push(`- … ${gone.length - removedMax} more are gone`);
    }

    /** Of a large page only a part was compared; changes in the rest are listed separately. */
    function tellElsewhere(): void {
      const touched = new Set(momentary.touched);
      for (const [field, value] of now.values)
        if (old.values.has(field) && old.values.get(field) !== value) touched.add(field);
      const shown = new Set<Element>();
      for (const each of touched) {
        let at: Element | null = each;
        while (at && !(at.isConnected && dom.boxOf(at).visible)) at = dom.parentOf(at);
        const part = at && now.byElement.get(at);
        if (at && (!part || part.node.unseen)) shown.add(at);
      }
      const places = [...shown].filter(
        (element) => ![...shown].some((other) => other !== element && other.contains(element)),
      );
      for (const place of places.slice(0, elsewhereMax)) {
        const known = now.byElement.get(place);
        if (known) emit("~", known, alone(known.node));
        else
          for (const part of looks.take(place, elsewhereCharsMax).top.parts)
            emit("~", part, part.node, elsewhereCharsMax);
      }
      if (places.length > elsewhereMax)
        lines.push(`~ … ${places.length - elsewhereMax} more places have changed`);
    }

    /** Whatever the rules above overlook: lines that were not there before, or the same ones in another order. */
    function tellOverlooked(): void {
      // Between parts, the place of a text counts too.
      const lineOf = ({ own, node }: Part) =>
        own + node.children.map((child) => (typeof child.node === "string" ? "text" : "part")).join();
      const linesOf = (look: Look) =>
        [...look.byElement.values()].filter((part) => says(part) || !part.parent);
      const [before, after] = [linesOf(old), linesOf(now)];
      const known = new Set(before.map(lineOf));
      if (before.length === after.length && before.every((part, at) => lineOf(part) === lineOf(after[at]!)))
        return;
      for (const part of after)
        if (part.element && !known.has(lineOf(part))) emit("~", part, alone(part.node));
      if (lines.length === 0) {
        told.add(null);
        lines.push("~ … parts of the page were taken away or put elsewhere; take a snapshot");
      }
    }

    visit(now.top);
    tellGone();
    if (now.isPartial) tellElsewhere();
    else if (lines.length === 0) tellOverlooked();
    return { lines, truncated, told };
  }

  return { compare };
}

export type Compare = ReturnType<typeof createCompare>;
