/** Which controls something lies over, so that a click would not reach them. */
import type { AriaNode } from "./describe.ts";
import type { Dom } from "./dom.ts";

export interface HitTest {
  deepestAt: (x: number, y: number) => Element | null;
  /** Whether a click that lands on `hit` counts for `target`. */
  reaches: (target: Element, hit: Element) => boolean;
}

interface Place {
  x: number;
  y: number;
}

export function createCovers(dom: Dom, hits: HitTest) {
  /** A hit test is dear on a long page, so only what may be covered is tested, and not without end. */
  const hitTestsMax = 300;
  const floatingMax = 500;
  /** Elements that are taken out of the flow: only these are expected to lie over others. */
  let floating = new Set<Element>();
  let controls: AriaNode[] = [];

  function begin(): void {
    floating = new Set();
    controls = [];
  }

  /** Told of every element that is walked over, but for inline ones: what is taken out of the flow is a block. */
  function notice(element: Element): void {
    const { position } = dom.styleOf(element);
    if (position !== "static" && position !== "relative" && floating.size < floatingMax)
      floating.add(element);
  }

  /** Told of what can be clicked. */
  function noticeControl(node: AriaNode): void {
    controls.push(node);
  }

  /** What lies over most of the window is found even where the walk did not get to it. */
  function probe(): void {
    let at = hits.deepestAt(innerWidth / 2, innerHeight / 2);
    for (; at; at = dom.parentOf(at)) notice(at);
  }

  const isIn = ({ left, top, right, bottom }: DOMRect, { x, y }: Place) =>
    x >= left && x < right && y >= top && y < bottom;

  function mark(isComplete: boolean): void {
    if (controls.length === 0) return;
    if (!isComplete) probe();
    const covers = [...floating]
      .map((element) => ({ element, rect: element.getBoundingClientRect() }))
      .filter(({ rect }) => rect.width > 0 && rect.height > 0);
    if (covers.length === 0) return;
    let tests = 0;
    for (const node of controls) {
      const places = placesOf(node.element);
      const middle = places?.[0];
      if (!places || !middle) continue;
      const isSuspect = covers.some(
        ({ element, rect }) => isIn(rect, middle) && !element.contains(node.element),
      );
      if (isSuspect && ++tests <= hitTestsMax) node.marks.covered = isCovered(node.element, places);
    }
  }

  /** Places inside the element's first visible line, the middle first; null when they are not in view. */
  function placesOf(element: Element): Place[] | null {
    const rect = [...element.getClientRects()].find(({ width, height }) => width >= 1 && height >= 1);
    if (!rect) return null;
    const places = [0.5, 0.2, 0.8].map((part) => ({
      x: rect.left + rect.width * part,
      y: rect.top + rect.height / 2,
    }));
    return places.every(({ x, y }) => x >= 0 && y >= 0 && x < innerWidth && y < innerHeight) ? places : null;
  }

  function isCovered(element: Element, places: Place[]): boolean {
    let cover: Element | null = null;
    for (const { x, y } of places) {
      const hit = hits.deepestAt(x, y);
      if (!hit || hits.reaches(element, hit) || hit.contains(element)) return false;
      cover ??= hit;
    }
    return cover !== null && !isScrolledAway(element, places[0]!) && !isPassing(cover);
  }

  /** In view as far as the window goes, but scrolled out of the list around it. */
  function isScrolledAway(element: Element, place: Place): boolean {
    for (let at = dom.parentOf(element); at; at = dom.parentOf(at))
      if (dom.styleOf(at).overflow !== "visible" && !isIn(at.getBoundingClientRect(), place)) return true;
    return false;
  }

  /** A header or footer that stays where it is while the page below it is scrolled. */
  function isPassing(cover: Element): boolean {
    const { scrollHeight } = document.scrollingElement ?? document.documentElement;
    if (scrollHeight <= innerHeight) return false;
    for (let at: Element | null = cover; at; at = dom.parentOf(at)) {
      const { position } = dom.styleOf(at);
      if (position !== "fixed" && position !== "sticky") continue;
      const { width, height } = at.getBoundingClientRect();
      return width * height < (innerWidth * innerHeight) / 2;
    }
    return false;
  }

  return { begin, notice, noticeControl, mark };
}

export type Covers = ReturnType<typeof createCovers>;
