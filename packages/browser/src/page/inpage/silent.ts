/** Elements that a snapshot leaves out because nothing is known of them; the tool asks the browser who listens to them. */

export function createSilent(listening: WeakSet<Element>) {
  const waitingMax = 100;
  /** A script may begin to listen some time after the page was first looked at. */
  const timesAskedMax = 2;
  const sideMin = 4;
  const timesAsked = new WeakMap<Element, number>();
  let waiting = new Set<Element>();
  let taken: Element[] = [];

  function notice(element: Element): void {
    if (waiting.size >= waitingMax || (timesAsked.get(element) ?? 0) >= timesAskedMax) return;
    const { width, height } = element.getBoundingClientRect();
    if (width >= sideMin && height >= sideMin) waiting.add(element);
  }

  const count = () => waiting.size;

  function take(): Element[] {
    taken = [...waiting];
    waiting = new Set();
    for (const element of taken) timesAsked.set(element, (timesAsked.get(element) ?? 0) + 1);
    return taken;
  }

  function adopt(positions: number[]): void {
    for (const position of positions) {
      const element = taken[position];
      if (element) listening.add(element);
    }
    taken = [];
  }

  return { notice, count, take, adopt };
}

export type Silent = ReturnType<typeof createSilent>;
