/** What has changed on the page since the last report, as lines of the snapshot: `+` new, `~` changed, `-` gone. */

import type { AriaNode } from "./describe.ts";
import type { Distiller } from "./distill.ts";
import type { Dom } from "./dom.ts";
import type { Momentary } from "./momentary.ts";
import type { Render } from "./render.ts";
import type { Tree } from "./tree.ts";

export interface Changes {
  lines: string[];
  /** Not all changes fit. */
  truncated: boolean;
  /** Texts that appeared only briefly and are gone. */
  momentary: string[];
}

interface ChangeTools {
  dom: Dom;
  tree: Tree;
  distiller: Distiller;
  renderer: Render;
  momentary: Momentary;
}

export function createChanges({ dom, tree, distiller, renderer, momentary }: ChangeTools) {
  /** A page that is larger is compared in part; what changes elsewhere in it is found through its mutations. */
  const walkCharsMax = 12_000;
  const shortestLine = 28;
  const lineCharsMin = 60;
  const removedMax = 8;
  const elsewhereMax = 5;
  const elsewhereCharsMax = 600;
  const childrenShownMax = 30;
  const fieldsMax = 500;
  const valueCharsMax = 100;

  interface Known {
    /** Everything that its own line shows. */
    own: string;
    node: AriaNode;
    parent: Element | null;
    children: Element[];
  }

  /** A look at the page; the key null is the page itself. */
  interface Seen {
    top: AriaNode;
    nodes: Map<Element | null, Known>;
    charsMax: number;
    isPartial: boolean;
  }
  let last: Seen | null = null;
  let previous: Seen | null = null;
  /** A look at the page that was taken ahead of time, and the state of the page that it is of. */
  let ahead: { now: Seen; changes: Changes; state: string; charsMax: number } | null = null;

  const partsOf = (node: AriaNode) =>
    node.children.flatMap((child) => (typeof child.node === "string" ? [] : [child.node]));
  const textsOf = (node: AriaNode) => node.children.filter((child) => typeof child.node === "string");
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
  const around = (node: AriaNode, parts: AriaNode[]) =>
    withChildren(
      node,
      parts.map((part) => ({ index: 0, node: part })),
    );

  /**
   * What a line shows, but for focus and place; and but for what lies over it, because a dialog that opens lies over
   * the whole page.
   */
  function ownOf(node: AriaNode): string {
    const { role, name, states, isAriaHidden, url, placeholder, hint } = node;
    const texts = textsOf(node).map((child) => child.node);
    return JSON.stringify([role, name, states, isAriaHidden, url, placeholder, hint, texts]);
  }

  function collect(top: AriaNode, charsMax: number): Seen {
    const nodes = new Map<Element | null, Known>();
    let isPartial = false;
    const visit = (node: AriaNode, key: Element | null, parent: Element | null) => {
      const parts = partsOf(node);
      if (node.unseen) isPartial = true;
      nodes.set(key, { own: ownOf(node), node, parent, children: parts.map(({ element }) => element) });
      for (const part of parts) visit(part, part.element, key);
    };
    visit(top, null, null);
    return { top, nodes, charsMax, isPartial };
  }

  /** All names and texts, one after the other. */
  function textOf({ nodes }: Seen): string {
    const words: string[] = [];
    for (const { node } of nodes.values())
      words.push(node.name, ...textsOf(node).map((child) => child.node as string));
    return words.join(" ").replace(/\s+/g, " ");
  }

  function walk(root: Element, charsMax: number): AriaNode {
    const childrenMax = Math.ceil(charsMax / shortestLine);
    const top = tree.build(root, { offset: 0, charsMax, childrenMax, isTarget: false });
    distiller.distill(top, 0);
    return top;
  }

  /** A picture in SVG is a document without a body. */
  const rootElement = (): Element | null => document.body ?? document.documentElement;

  /** A snapshot of the whole page was handed out; what comes later is a change. */
  function remember(top: AriaNode, charsMax: number): void {
    const seen = collect(top, charsMax);
    // A part of a large page is compared more cheaply, from its next action on.
    last = seen.isPartial ? null : seen;
    previous = null;
    momentary.watch();
  }

  /** Before an action: without something to compare with, the page is looked at now. */
  function prepare(): void {
    momentary.watch();
    const root = rootElement();
    if (last || !root) return;
    dom.resetCaches();
    last = collect(walk(root, walkCharsMax), walkCharsMax);
  }

  /** Whether children that were there before are in their old order, and none has come from elsewhere. */
  function isInOrder(known: Known, kept: Element[], old: Seen, now: Seen): boolean {
    const places = new Map(known.children.map((child, index) => [child, index]));
    let lastPlace = -1;
    for (const child of kept) {
      const place = places.get(child);
      if (place === undefined) {
        // A plain wrapper comes and goes with the number of its children; that is not a move.
        if (now.nodes.has(old.nodes.get(child)!.parent)) return false;
        continue;
      }
      if (place < lastPlace) return false;
      lastPlace = place;
    }
    return true;
  }

  function compare(old: Seen, now: Seen, charsMax: number): Changes {
    const lines: string[] = [];
    let left = charsMax;
    let truncated = false;

    function emit(sign: string, node: AriaNode, limit = left): void {
      if (left < lineCharsMin) {
        truncated = true;
        return;
      }
      const options = { charsMax: Math.min(left, limit), depthMax: 0, boxes: false, indentChars: 2 };
      const rendered = renderer.render(around(now.top, [node]), options);
      truncated ||= rendered.truncated;
      for (const line of rendered.lines) lines.push(`${sign} ${line.replace(/^( *)- /, "$1")}`);
      left -= rendered.chars;
    }

    const holdsKnown = (node: AriaNode): boolean =>
      partsOf(node).some((part) => old.nodes.has(part.element) || holdsKnown(part));

    function visit(node: AriaNode, key: Element | null): void {
      const known = old.nodes.get(key);
      if (!known && !holdsKnown(node)) {
        // In a part of a large page, what moves up into that part is not new.
        if (!old.isPartial || momentary.isTouched(node.element)) emit("+", node);
        return;
      }
      const { own, children } = now.nodes.get(key)!;
      if (known && known.own !== own) {
        if (key) emit("~", alone(node));
        else for (const text of newTexts(known.node, node)) emit("+", text);
      }
      const kept = children.filter((child) => old.nodes.has(child));
      if (known && !isInOrder(known, kept, old, now))
        emit("~", around(node, partsOf(node).slice(0, childrenShownMax).map(alone)));
      for (const part of partsOf(node)) visit(part, part.element);
    }

    /** Text that stands in the page without an element of its own. */
    function newTexts(before: AriaNode, after: AriaNode): AriaNode[] {
      const old = new Set(textsOf(before).map((child) => child.node));
      return textsOf(after)
        .filter((child) => !old.has(child.node))
        .map((child) => withChildren({ ...after, role: "text", ref: null, name: "" }, [child]));
    }

    const isGone = (element: Element) =>
      !now.nodes.has(element) && (!element.isConnected || !dom.boxOf(element).visible);

    function tellRemoved(): void {
      const drawnAgain = new Set(
        [...now.nodes].flatMap(([key, { own }]) => (old.nodes.has(key) ? [] : [own])),
      );
      const gone = [...old.nodes].filter(([key, { own, node, parent }]) => {
        if (key === null || !isGone(key) || (parent && isGone(parent)) || drawnAgain.has(own)) return false;
        return node.role !== "generic" || node.name !== "" || textsOf(node).length > 0;
      });
      for (const [, { node }] of gone.slice(0, removedMax)) emit("-", { ...alone(node), ref: null });
      if (gone.length > removedMax) lines.push(`- … ${gone.length - removedMax} more are gone`);
    }

    /** Of a large page only a part was compared; changes in the rest are listed separately. */
    function tellElsewhere(): void {
      let told = 0;
      for (const element of momentary.touched) {
        const isCovered = now.nodes.has(element) || !element.isConnected || !dom.boxOf(element).visible;
        if (isCovered || [...momentary.touched].some((other) => other !== element && other.contains(element)))
          continue;
        if (told++ >= elsewhereMax) return;
        for (const part of partsOf(walk(element, elsewhereCharsMax))) emit("~", part, elsewhereCharsMax);
      }
    }

    visit(now.top, null);
    tellRemoved();
    if (now.isPartial) tellElsewhere();
    return { lines, truncated, momentary: [] };
  }

  /** Changes when the document does, or the value of a field, which is not a change of the document. */
  function stateOfPage(): string {
    const fields = document.querySelectorAll<HTMLInputElement>("input, textarea, select");
    let values = "";
    for (let i = 0; i < fields.length && i < fieldsMax; i++) {
      const { value, checked, selectedIndex } = fields[i] as HTMLInputElement & HTMLSelectElement;
      values += `${String(value).slice(0, valueCharsMax)}|${checked}|${selectedIndex};`;
    }
    return `${momentary.changesSoFar()} ${values}`;
  }

  function look(old: Seen, root: Element, charsMax: number): { now: Seen; changes: Changes } {
    dom.resetCaches();
    const now = collect(walk(root, old.charsMax), old.charsMax);
    const changes = compare(old, now, charsMax);
    dom.resetCaches();
    return { now, changes };
  }

  /** Compares now what will be asked for a moment later. */
  function anticipate(charsMax: number): void {
    const root = rootElement();
    ahead = null;
    if (!last || !root) return;
    momentary.watch();
    const looked = look(last, root, charsMax);
    ahead = { ...looked, state: stateOfPage(), charsMax };
  }

  /** Compares, and from now on compares with what is there now; `again`: with what was compared with the last time. */
  function since(charsMax: number, again: boolean): Changes {
    const root = rootElement();
    if (!last || !root) {
      prepare();
      return { lines: [], truncated: false, momentary: momentary.take("") };
    }
    momentary.watch();
    const old = (again && previous) || last;
    const isFresh = !again && ahead?.charsMax === charsMax && ahead.state === stateOfPage();
    const { now, changes } = isFresh ? ahead! : look(old, root, charsMax);
    ahead = null;
    previous = old;
    last = now;
    return { ...changes, momentary: momentary.take(textOf(old)) };
  }

  return { remember, prepare, anticipate, since };
}

export type ChangeLog = ReturnType<typeof createChanges>;
