/** Takes everything out of an aria tree but the branches that hold a text. */
import type { AriaNode } from "./describe.ts";
import type { Dom } from "./dom.ts";

/** The elements on the way to a hit, and whether an element is one, with all that is in it. */
export type Ways = Map<Element, boolean>;

export interface Search {
  ways: Ways;
  /** How many more places hold the text than are led to. */
  more: number;
}

export function createPrune(dom: Dom) {
  /** How much more of a page is looked at for a search than would be shown. */
  const widening = 20;
  /** A larger page is first searched by its texts, so that only what holds a hit is described. */
  const elementsMax = 1_500;
  const hitsMax = 200;
  const depthMax = 200;
  const flat = (text: string | null | undefined) => (text ?? "").replace(/\s+/g, " ").toLowerCase();

  /** Null for a page that is small enough to be described whole. */
  function waysTo(root: Element, text: string): Search | null {
    if (root.getElementsByTagName("*").length < elementsMax) return null;
    const wanted = flat(text).trim();
    const ways: Ways = new Map();
    let hits = 0;
    let more = 0;
    const lead = (to: Element, isHit: boolean) => {
      for (let at = dom.parentOf(to); at && !ways.has(at); at = dom.parentOf(at)) ways.set(at, false);
      if (!ways.get(to)) ways.set(to, isHit);
    };
    const hit = (element: Element) => {
      if (hits++ < hitsMax) lead(element.closest("tr, [role=row]") ?? element, true);
      else more++;
    };
    const search = (node: Element | ShadowRoot, depth: number): boolean => {
      const held = flat(node.textContent);
      if (!held.includes(wanted)) return false;
      if (hits >= hitsMax) {
        more += held.split(wanted).length - 1;
        return true;
      }
      let isBelow = false;
      if (depth < depthMax) for (const child of node.children) isBelow = search(child, depth + 1) || isBelow;
      if (!isBelow && node instanceof Element) hit(node);
      const control = node instanceof HTMLLabelElement ? node.control : null;
      if (control) hit(control);
      return true;
    };
    search(root, 0);
    for (const shadow of dom.shadowRoots) if (root.contains(shadow.host)) search(shadow, 0);
    const read = Element.prototype.getAttribute;
    for (const element of root.querySelectorAll(
      "[aria-label], [placeholder], [alt], [title], input, textarea",
    )) {
      const words = ["aria-label", "placeholder", "alt", "title"].map((name) => read.call(element, name));
      if (flat([...words, (element as HTMLInputElement).value].join(" ")).includes(wanted)) hit(element);
    }
    // What a frame holds is not known here.
    for (const frame of root.querySelectorAll("iframe, frame, object, embed")) lead(frame, false);
    return { ways, more };
  }

  function keepMatching(top: AriaNode, text: string): void {
    const wanted = text.trim().toLowerCase();
    const has = (value: string | undefined) => value?.toLowerCase().includes(wanted) === true;
    const isMatch = (node: AriaNode) =>
      has(node.name) ||
      has(node.placeholder) ||
      node.children.some((child) => typeof child.node === "string" && has(child.node));

    const holdsMatch = (node: AriaNode): boolean =>
      isMatch(node) ||
      node.children.some((child) => typeof child.node !== "string" && holdsMatch(child.node));

    function keep(node: AriaNode): boolean {
      // What belongs to a match is shown whole; and of a row, what can be done with it.
      if (isMatch(node) || (node.role === "row" && holdsMatch(node))) return true;
      // What a frame holds is not known here; one without a match is taken out later.
      if (node.role === "iframe") return node.ref !== null;
      node.children = node.children.filter((child) => typeof child.node !== "string" && keep(child.node));
      node.unseen = undefined;
      return node.children.length > 0;
    }

    top.children = top.children.filter((child) =>
      typeof child.node === "string" ? has(child.node) : keep(child.node),
    );
    top.unseen = undefined;
  }

  return { keepMatching, waysTo, widening };
}
