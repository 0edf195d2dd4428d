/** Elements that a snapshot leaves out because nothing is known of them; the tool asks the browser who listens to them. */

export function createSilent(listening: WeakSet<Element>) {
  const waitingMax = 300;
  /** A script may begin to listen some time after the page was first looked at. */
  const timesAskedMax = 2;
  const sideMin = 4;
  const timesAsked = new WeakMap<Element, number>();
  const waiting = new Set<Element>();

  function notice(element: Element): void {
    if (waiting.size >= waitingMax || (timesAsked.get(element) ?? 0) >= timesAskedMax) return;
    const { width, height } = element.getBoundingClientRect();
    if (width >= sideMin && height >= sideMin) waiting.add(element);
  }

  const count = () => waiting.size;
  const list = () => [...waiting];

  /** Given elements that scripts listen to. Returns how many of those were waiting to hear about it. */
  function adopt(...elements: Element[]): number {
    const found = elements.filter((element) => waiting.has(element));
    for (const element of found) listening.add(element);
    for (const element of waiting) timesAsked.set(element, (timesAsked.get(element) ?? 0) + 1);
    waiting.clear();
    return found.length;
  }

  return { notice, count, list, adopt };
}

export type Silent = ReturnType<typeof createSilent>;
