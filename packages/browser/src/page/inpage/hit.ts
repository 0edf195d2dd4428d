/** Where an element can be hit, and whether what was hit belongs to it. */
import type { Brief } from "./brief.ts";
import type { Dom } from "./dom.ts";

export interface Point {
  x: number;
  y: number;
}

export function createHit({ dom, brief }: { dom: Dom; brief: Brief }) {
  function deepestIn(root: DocumentOrShadowRoot, { x, y }: Point): Element | null {
    let at = root.elementFromPoint(x, y);
    while (at) {
      const inner: Element | null = dom.shadowOf(at)?.elementFromPoint(x, y) ?? null;
      if (!inner || inner === at) return at;
      at = inner;
    }
    return null;
  }

  const deepestAt = (x: number, y: number) => deepestIn(document, { x, y });

  const slotParent = (element: Element) => element.assignedSlot ?? dom.parentOf(element);

  function contains(outer: Element, inner: Element): boolean {
    for (let at: Element | null = inner; at; at = slotParent(at)) if (at === outer) return true;
    return false;
  }

  /** An image map's area lies on its image, which is what the browser hits when it looks at a point. */
  function areaImage(target: Element): Element | null {
    if (!(target instanceof HTMLAreaElement)) return null;
    const map = target.closest("map");
    if (!map?.name) return null;
    return document.querySelector(`img[usemap="#${CSS.escape(map.name)}"]`);
  }

  /** A label stands for its control: a styled checkbox is usually clicked through it. */
  function reaches(target: Element, hit: Element): boolean {
    if (contains(target, hit)) return true;
    const label = hit.closest("label");
    if (label?.control === target) return true;
    return target instanceof HTMLLabelElement && target.control === hit;
  }

  /** What an element is clicked at: itself, or with `display: contents` the first thing in it that has a box. */
  function boxedIn(node: Node): Element | Text | null {
    if (node instanceof Text) return dom.isTextShown(node) ? node : null;
    if (!(node instanceof Element)) return null;
    if (dom.styleOf(node).display !== "contents") return dom.boxOf(node).visible ? node : null;
    for (const child of dom.childrenOf(node)) {
      const boxed = boxedIn(child);
      if (boxed) return boxed;
    }
    return null;
  }

  function boxed(element: Element): Element | Range {
    const found = dom.styleOf(element).display === "contents" ? boxedIn(element) : element;
    if (!(found instanceof Text)) return found ?? element;
    const range = document.createRange();
    range.selectNode(found);
    return range;
  }

  function scrollTo(element: Element, alignment: ScrollLogicalPosition): void {
    const place = boxed(shownAs(element));
    let at: Element | null = place instanceof Element ? place : element;
    // Only what has a box can be scrolled to; around a bare text that is the next ancestor with one.
    while (at && dom.styleOf(at).display === "contents") at = slotParent(at);
    at?.scrollIntoView({ block: alignment, inline: alignment, behavior: "instant" });
  }

  function visibleRects(element: Element): DOMRect[] {
    const inView: DOMRect[] = [];
    for (const rect of boxed(element).getClientRects()) {
      const left = Math.max(rect.left, 0);
      const top = Math.max(rect.top, 0);
      const width = Math.min(rect.right, innerWidth) - left;
      const height = Math.min(rect.bottom, innerHeight) - top;
      if (width >= 1 && height >= 1) inView.push(new DOMRect(left, top, width, height));
    }
    return inView.sort((a, b) => b.width * b.height - a.width * a.height);
  }

  function isWholeInView(element: Element): boolean {
    const rect = boxed(shownAs(element)).getBoundingClientRect();
    return rect.top >= 0 && rect.left >= 0 && rect.bottom <= innerHeight && rect.right <= innerWidth;
  }

  /** The middle first; where something lies over it, four more places inside the element. */
  function* pointsOf(rect: DOMRect): Generator<Point> {
    for (const [partX, partY] of [
      [0.5, 0.5],
      [0.2, 0.5],
      [0.8, 0.5],
      [0.5, 0.2],
      [0.5, 0.8],
    ] as const)
      yield { x: rect.left + rect.width * partX, y: rect.top + rect.height * partY };
  }

  /** A place in an area of an image map: the middle of its circle or of the box around its corners. */
  function areaPoint(area: HTMLAreaElement, image: Element): Point {
    const { left, top, width, height } = image.getBoundingClientRect();
    const numbers = area.coords.split(/[\s,]+/).map(Number);
    if (area.shape === "default" || numbers.length < 3) return { x: left + width / 2, y: top + height / 2 };
    if (area.shape === "circle") return { x: left + numbers[0]!, y: top + numbers[1]! };
    const xs = numbers.filter((_, i) => i % 2 === 0);
    const ys = numbers.filter((_, i) => i % 2 === 1);
    const middle = (all: number[]) => (Math.min(...all) + Math.max(...all)) / 2;
    return { x: left + middle(xs), y: top + middle(ys) };
  }

  /** Labels that a click may go to instead, where the control itself is hidden behind something styled. */
  function labelsOf(element: Element): Element[] {
    const labels = "labels" in element ? (element as HTMLInputElement).labels : null;
    return [...(labels ?? [])].filter((label) => dom.boxOf(label).visible);
  }

  /** The element to inspect and scroll to: itself, or the one that represents it on the page. */
  function shownAs(element: Element): Element {
    const image = areaImage(element);
    if (image) return image;
    return dom.boxOf(element).visible ? element : (labelsOf(element)[0] ?? element);
  }

  /** Candidates, best first. */
  function* placesIn(element: Element): Generator<Point> {
    const image = areaImage(element);
    if (image) yield areaPoint(element as HTMLAreaElement, image);
    else
      for (const part of [element, ...labelsOf(element)])
        for (const rect of visibleRects(part).slice(0, 3)) yield* pointsOf(rect);
  }

  /** A place where a click reaches the element, or what is in the way. */
  function placeToHit(element: Element): { place: Point } | { cover: string } | null {
    let cover: Element | null = null;
    let isAnywhere = false;
    for (const place of placesIn(element)) {
      isAnywhere = true;
      const hit = deepestAt(place.x, place.y);
      if (hit && reaches(element, hit)) return { place };
      cover ??= hit;
    }
    if (!isAnywhere) return null;
    return { cover: cover ? `${brief(cover)} covers it` : "nothing is hit at its place" };
  }

  return {
    deepestAt,
    deepestIn,
    contains,
    reaches,
    boxed,
    shownAs,
    scrollTo,
    visibleRects,
    isWholeInView,
    placeToHit,
  };
}

export type Hit = ReturnType<typeof createHit>;
