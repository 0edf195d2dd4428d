/** What has changed on the page since the last report. */
import type { Compare, Difference } from "./compare.ts";
import type { AriaNode } from "./describe.ts";
import type { Dom } from "./dom.ts";
import type { Look, Looks } from "./looks.ts";
import type { Momentary } from "./momentary.ts";

export interface Changes {
  lines: string[];
  /** Not all changes fit. */
  truncated: boolean;
  /** The page is so large that only a part of it was compared. */
  isPartial: boolean;
  /** Nothing of this document had been reported before, so all of it is new. */
  isNew: boolean;
  /** Texts that appeared only briefly and are gone. */
  momentary: string[];
}

interface ChangeTools {
  dom: Dom;
  looks: Looks;
  comparison: Compare;
  momentary: Momentary;
}

export function createChanges({ dom, looks, comparison, momentary }: ChangeTools) {
  /** A page that is larger is compared in part; what changes elsewhere in it is found through its mutations. */
  const charsMaxCompared = 28_000;
  const fieldsMax = 500;
  const structureParts = 2;
  const valueCharsMax = 100;

  let last: Look | null = null;
  let previous: Look | null = null;
  /** Of a page that has changed since the last report: what it was like before the action. */
  let atBegin: Look | null = null;
  let changesAtReport = 0;
  /** What results have told as new, and what the last one has, which may still be told with more. */
  const toldBefore = new WeakMap<Element, string>();
  let toldLast: Difference["news"] = new Map();
  /** A look at the page that was taken ahead of time, and the state of the page that it is of. */
  let ahead: { now: Look; difference: Difference; state: string; charsMax: number } | null = null;

  /** A picture in SVG is a document without a body. */
  const rootElement = (): Element | null => document.body ?? document.documentElement;

  function lookNow(): Look {
    dom.resetCaches();
    const root = rootElement();
    return root ? looks.take(root, charsMaxCompared) : nothing();
  }

  /** The look of a document that nothing is known of yet. */
  function nothing(): Look {
    const node = { ...looks.walk(document.createElement("p"), 1), children: [], unseen: undefined };
    return looks.lookAt(node, charsMaxCompared);
  }

  /** A snapshot of the whole page was handed out; what comes later is a change. */
  function remember(top: AriaNode, charsMax: number): void {
    momentary.watch();
    last = looks.lookAt(top, charsMax);
    previous = null;
    changesAtReport = momentary.changesSoFar();
  }

  /** Before an action: without something to compare with, the page is looked at now. */
  function prepare(): void {
    momentary.watch();
    for (const [element, text] of toldLast) toldBefore.set(element, text);
    const isChanged = momentary.changesSoFar() !== changesAtReport;
    atBegin = isChanged || !last ? lookNow() : null;
    last ??= atBegin;
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

  function look(old: Look, charsMax: number): { now: Look; difference: Difference } {
    const now = lookNow();
    const difference = comparison.compare(old, now, charsMax, toldBefore);
    dom.resetCaches();
    return { now, difference };
  }

  /** Compares now what will be asked for a moment later. */
  function anticipate(charsMax: number): void {
    ahead = null;
    if (!last) return;
    momentary.watch();
    ahead = { ...look(last, charsMax), state: stateOfPage(), charsMax };
  }

  const isAbout = (element: Element | null, { told, isUnripe }: Difference) =>
    isUnripe ||
    [...told].every((each) => each && element && (each.contains(element) || element.contains(each)));

  /** Whether the last action has changed nothing so far but this element and what it stands in, or only half. */
  function isBare(element: Element | null): boolean {
    const old = atBegin ?? previous ?? last;
    return old === null || isAbout(element, look(old, charsMaxCompared).difference);
  }

  /** Compares, and from now on compares with what is there now; `again`: with what was compared with the last time. */
  function since(
    charsMax: number,
    again: boolean,
    element: Element | null,
  ): { changes: Changes; isBare: boolean } {
    const isNew = last === null;
    momentary.watch();
    const old = (again && previous) || last || nothing();
    const isFresh = !again && ahead?.charsMax === charsMax && ahead.state === stateOfPage();
    const { now, difference } = isFresh ? ahead! : look(old, charsMax);
    ahead = null;
    previous = old;
    last = now;
    changesAtReport = momentary.changesSoFar();
    const { lines, truncated } = difference;
    toldLast = difference.news;
    const isPartial = now.isPartial || old.isPartial;
    const changes = {
      lines,
      truncated,
      isPartial,
      isNew,
      momentary: momentary.take({
        text: () => looks.textOf(old.top),
        isStructure: (each) => (old.byElement.get(each)?.parts.length ?? 0) >= structureParts,
      }),
    };
    return { changes, isBare: atBegin ? isBare(element) : isAbout(element, difference) };
  }

  return { remember, prepare, anticipate, since, isBare };
}

export type ChangeLog = ReturnType<typeof createChanges>;
