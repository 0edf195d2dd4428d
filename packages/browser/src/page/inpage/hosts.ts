/** Elements that may hold a closed shadow root, which script cannot see; the tool asks the browser about them. */
import type { Dom } from "./dom.ts";

export function createHosts(dom: Dom) {
  const smallPageMax = 500;
  const waitingMax = 200;
  const mayHost = /^(ARTICLE|ASIDE|BLOCKQUOTE|BODY|DIV|FOOTER|H[1-6]|HEADER|MAIN|NAV|P|SECTION|SPAN)$/;
  /** What an element looked like when it was asked about; a root attached later changes it. */
  const asked = new WeakMap<Element, string>();
  const waiting = new Set<Element>();

  const isSmallPage = () => document.getElementsByTagName("*").length <= smallPageMax;
  const lookOf = (element: Element) => `${element.matches(":defined")} ${element.clientHeight}`;

  /**
   * Custom elements are always worth asking about. Plain ones are when they show something without holding
   * anything; in a small page, all that can host a root.
   */
  function isSuspect(element: Element, isSmall: boolean): boolean {
    const name = dom.tagOf(element);
    if (name.includes("-")) return true;
    return mayHost.test(name) && (isSmall || element.firstChild === null) && element.clientHeight > 0;
  }

  let smallness: boolean | null = null;

  function notice(element: Element): void {
    smallness ??= isSmallPage();
    if (waiting.size >= waitingMax || !isSuspect(element, smallness)) return;
    if (element.shadowRoot || dom.closedRoots.has(element) || asked.get(element) === lookOf(element)) return;
    waiting.add(element);
  }

  function scan(): number {
    for (const element of document.getElementsByTagName("*")) notice(element);
    return count();
  }

  function count(): number {
    smallness = null;
    return waiting.size;
  }

  function take(): Element[] {
    const taken = [...waiting];
    waiting.clear();
    for (const element of taken) asked.set(element, lookOf(element));
    return taken;
  }

  function adopt(...roots: ShadowRoot[]): number {
    let added = 0;
    for (const root of roots) {
      if (dom.closedRoots.has(root.host)) continue;
      dom.closedRoots.set(root.host, root);
      added++;
    }
    return added;
  }

  return { notice, scan, count, take, adopt, isSmallPage };
}

export type Hosts = ReturnType<typeof createHosts>;
