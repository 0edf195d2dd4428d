/** The difference of two looks, as lines of the snapshot: `+` new, `~` changed, `-` gone. */
import type { Brief } from "./brief.ts";
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
  /** The lines of what is new, where there are many. */
  news: Map<Element, string>;
  /** There are new controls that take no clicks yet, as while a list fades in. */
  isUnripe: boolean;
}

interface CompareTools {
  dom: Dom;
  brief: Brief;
  looks: Looks;
  pairing: Pairing;
  renderer: Render;
  momentary: Momentary;
}

export function createCompare({ dom, brief, looks, pairing, renderer, momentary }: CompareTools) {
  const lineCharsMin = 60;
  /** Of more than these that are gone, so many are told. */
  const removedMax = 8;
  const removedShown = 3;
  const removedCharsMax = 80;
  const elsewhereMax = 5;
  const elsewhereCharsMax = 600;
  const childrenShownMax = 30;
  /** Of more new parts in a row, with more text than this, the first ones and the last one are told. */
  const runMax = 12;
  const runCharsMax = 1_500;
  const runShown = 4;
  /** What was told with more than this is not told again as long as it is the same. */
  const againCharsMax = 400;
  const restyledMax = 3;

  const { textsOf, textOf, wordsOf, says } = looks;
  /** About how many characters its lines will take. */
  const sizeOf = (part: Part): number =>
    part.parts.reduce((sum, each) => sum + sizeOf(each), lineCharsMin / 2 + wordsOf(part).join().length);

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
  const controls = /^(button|checkbox|link|menuitem|option|radio|searchbox|switch|tab|textbox|treeitem)$/;
  const hasUnripe = ({ element, role, ref, children }: AriaNode): boolean =>
    (controls.test(role) && ref === null && !(element instanceof HTMLOptionElement)) ||
    children.some(({ node }) => typeof node !== "string" && hasUnripe(node));
  const textNode = (node: AriaNode, text: string) =>
    withChildren({ ...node, role: "text", ref: null, name: "" }, [{ index: 0, node: text }]);

  function compare(old: Look, now: Look, charsMax: number, toldBefore: WeakMap<Element, string>): Difference {
    const lines: string[] = [];
    const told = new Set<Element | null>();
    const news: Difference["news"] = new Map();
    let left = charsMax;
    let truncated = false;
    let isUnripe = false;
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
      const options = {
        charsMax: Math.min(left, limit),
        depthMax: 0,
        boxes: false,
        terse: true,
        indentChars: 2,
      };
      const rendered = renderer.render(around(now.top.node, [node]), options);
      truncated ||= rendered.truncated;
      const own = rendered.lines.map((line) => `${sign} ${line.replace(/^( *)- /, "$1")}`);
      const text = own.join("\n");
      if (sign === "+" && part.element && text.length > againCharsMax) {
        news.set(part.element, text);
        if (toldBefore.get(part.element) === text)
          own.splice(1, own.length, `+   … ${own.length - 1} lines as told before, with the same refs`);
      }
      lines.push(...own);
      left -= own.join("\n").length;
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

    const isFresh = (part: Part) => !pairs.has(part) && !holding.has(part);
    /** In a part of a large page, what moves up into that part is not new. */
    const isNews = (part: Part) => isFresh(part) && (!old.isPartial || momentary.isTouched(part.element!));

    /** What came in one place; of what an endless list has loaded, as much as tells what it is. */
    function tellNews(parent: Part, run: Part[]): void {
      const isLong = run.length > runMax && run.reduce((sum, part) => sum + sizeOf(part), 0) > runCharsMax;
      const head = isLong ? run.slice(0, runShown) : run;
      isUnripe ||= head.some(({ node }) => hasUnripe(node));
      for (const part of head) emit("+", part, part.node);
      if (!isLong) return;
      truncated = true;
      const offset = parent.node.children.find(({ node }) => node === run[runShown]!.node)?.index;
      const call = parent.node.ref && JSON.stringify({ target: parent.node.ref, offset });
      lines.push(`+ … ${run.length - runShown - 1} more${call ? `, see browser_snapshot ${call}` : ""}`);
      emit("+", run.at(-1)!, run.at(-1)!.node);
    }

    function visitParts(parent: Part): void {
      let run: Part[] = [];
      const flush = () => {
        if (run.length > 0) tellNews(parent, run);
        run = [];
      };
      for (const part of parent.parts) {
        if (isNews(part)) run.push(part);
        else {
          flush();
          if (!isFresh(part)) visit(part);
        }
      }
      flush();
    }

    function visit(part: Part): void {
      const was = pairs.get(part);
      if (!was && says(part)) emit("+", part, alone(part.node));
      if (was && was.own !== part.own) tellOwn(part, was);
      if (was && !isInOrder(part, was)) {
        const shown = part.parts.slice(0, childrenShownMax).map(({ node }) => alone(node));
        emit("~", part, around(part.node, shown));
      }
      visitParts(part);
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
      const shown = gone.length > removedMax ? removedShown : gone.length;
      for (const was of gone.slice(0, shown)) {
        const node = { ...alone(was.node), ref: null };
        if (!node.name && node.children.length === 0 && was.parts.length > 0)
          node.children = [{ index: 0, node: textOf(was).slice(0, removedCharsMax) }];
        emit("-", was, node);
      }
      if (gone.length > shown) lines.push(`- … ${gone.length - shown} more are gone`);
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

    /** What can only be seen: a tile that is marked, a star that is lit. */
    function tellRestyled(): void {
      const restyled = [...now.classes].filter(
        ([element, name]) =>
          old.classes.has(element) && old.classes.get(element) !== name && dom.boxOf(element).visible,
      );
      for (const [element] of restyled.slice(0, restyledMax))
        lines.push(
          `~ ${brief(element)}: only its class, which was ${JSON.stringify(old.classes.get(element))}`,
        );
      if (restyled.length > restyledMax)
        lines.push(`~ … ${restyled.length - restyledMax} more have another class`);
    }

    visit(now.top);
    tellGone();
    if (now.isPartial) tellElsewhere();
    else if (lines.length === 0) tellOverlooked();
    if (lines.length === 0) tellRestyled();
    return { lines, truncated, told, news, isUnripe };
  }

  return { compare };
}

export type Compare = ReturnType<typeof createCompare>;
