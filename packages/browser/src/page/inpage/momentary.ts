/** Sees what the page shows for a moment only, such as a toast, so that the next result can still tell of it. */
import type { Dom } from "./dom.ts";

/** What was told of the page before. */
export interface Told {
  text: () => string;
  /** Whether it was told with parts of its own: a calendar is, a message is not. */
  isStructure: (element: Element) => boolean;
}

export function createMomentary({ dom, page }: { dom: Dom; page: Document }) {
  /** Watching goes on for so long after the last call; an idle page costs nothing. */
  const watchMsMax = 60_000;
  /** What one frame of the page may cost. */
  const lookMsMax = 2;
  /** How often it is looked whether something changed, while somebody waits for that. */
  const lookMsEach = 10;
  const pendingMax = 200;
  const recordsMax = 200;
  const shownMax = 50;
  const reportedMax = 5;
  const textCharsMax = 300;
  const elementsMax = 20_000;
  const longTextWords = 8;
  /** Attributes that make something appear or go. */
  const showing = new Set(["class", "style", "hidden", "open", "aria-hidden", "aria-expanded", "data-state"]);

  const pending = new Set<Element>();
  /** Changed since the last report; where the whole page is not looked at, this is where to look. */
  const touched = new Set<Element>();
  /** The text that an element was seen with. */
  const shown = new Map<Element, string>();
  const watched = new Set<ShadowRoot>();
  let isWatching = false;
  let isLookAsked = false;
  let endsAt = 0;
  let changeCount = 0;

  const unread = /^(SCRIPT|STYLE|TEMPLATE|NOSCRIPT|LINK|META|HEAD|TITLE|BODY|HTML)$/;

  function note(node: Node | null, mayAppear = true): void {
    const element = node instanceof Element ? node : node && dom.parentOf(node);
    if (!element || unread.test(dom.tagOf(element))) return;
    if (mayAppear && pending.size < pendingMax) pending.add(element);
    if (touched.size < pendingMax) touched.add(element);
  }

  function heed(records: MutationRecord[]): void {
    changeCount += records.length;
    if (performance.now() > endsAt) {
      stop();
      return;
    }
    const half = recordsMax / 2;
    const some = records.length > recordsMax ? [...records.slice(0, half), ...records.slice(-half)] : records;
    for (const record of some) {
      if (record.type !== "childList")
        note(record.target, record.type !== "attributes" || showing.has(record.attributeName ?? ""));
      else {
        if (record.removedNodes.length > 0) note(record.target, false);
        let count = 0;
        for (const node of record.addedNodes) if (count++ < half) note(node);
      }
    }
    if (pending.size > 0 && !isLookAsked) {
      isLookAsked = true;
      requestAnimationFrame(look);
    }
  }

  const observer = new MutationObserver(heed);

  function stop(): void {
    observer.disconnect();
    isWatching = false;
    watched.clear();
    pending.clear();
  }

  const observed = { subtree: true, childList: true, characterData: true, attributes: true };

  /** What happens below a shadow root is not seen from the document. */
  function watchShadows(): void {
    for (const root of dom.shadowRoots) {
      if (!root.isConnected) dom.shadowRoots.delete(root);
      else if (!watched.has(root)) {
        watched.add(root);
        observer.observe(root, observed);
      }
    }
  }

  /** Called with every operation. */
  function watch(): void {
    endsAt = performance.now() + watchMsMax;
    if (!isWatching) observer.observe(page, observed);
    isWatching = true;
    watchShadows();
  }

  const flat = (text: string) => text.trim().replace(/\s+/g, " ");

  function visibleText(element: Element): string {
    if (!element.isConnected || !element.checkVisibility({ visibilityProperty: true })) return "";
    const { width, height } = element.getBoundingClientRect();
    if (width === 0 || height === 0) return "";
    return flat(element instanceof HTMLElement ? element.innerText : (element.textContent ?? ""));
  }

  function look(): void {
    isLookAsked = false;
    const until = performance.now() + lookMsMax;
    for (const element of pending) {
      if (performance.now() > until) break;
      if (shown.has(element) || element.getElementsByTagName("*").length > pendingMax) continue;
      const text = visibleText(element);
      if (!text || text.length > textCharsMax) continue;
      shown.set(element, text);
      if (shown.size > shownMax) shown.delete(shown.keys().next().value!);
    }
    pending.clear();
  }

  const wordsIn = (text: string) => ({ joined: text.replace(/\s+/g, ""), words: new Set(text.split(/\s+/)) });

  /** Of a long text, such as a calendar's, the words are enough: names order and space them differently. */
  function isTold(text: string, { joined, words }: ReturnType<typeof wordsIn>): boolean {
    if (joined.includes(text.replace(/\s+/g, ""))) return true;
    const own = text.split(" ");
    return own.length >= longTextWords && own.every((word) => words.has(word));
  }

  const isSmallPage = () => document.getElementsByTagName("*").length < elementsMax;

  /** Texts that were shown and are gone, and that nobody was told of. */
  function take(told: Told): string[] {
    look();
    const texts = new Set<string>();
    for (const [element, text] of shown) {
      const now = visibleText(element);
      if (now !== "") {
        // Still there, perhaps with another text; the page itself tells.
        if (now !== text) shown.delete(element);
        continue;
      }
      shown.delete(element);
      if (!told.isStructure(element)) texts.add(text);
    }
    touched.clear();
    if (texts.size === 0) return [];
    const before = wordsIn(told.text());
    for (const text of texts) if (isTold(text, before)) texts.delete(text);
    if (texts.size === 0 || !isSmallPage()) return [...texts].slice(0, reportedMax);
    // A list that is drawn again shows the same text in new elements.
    const whole = flat(document.body?.innerText ?? "");
    const gone = [...texts].filter((text) => !whole.includes(text));
    // A toast is reported once, not again for each of its parts.
    return gone
      .filter((text) => !gone.some((other) => other !== text && other.includes(text)))
      .slice(0, reportedMax);
  }

  /** Whether it, or what it stands in, has changed since the last report. */
  function isTouched(element: Element): boolean {
    for (let at: Element | null = element; at; at = dom.parentOf(at)) if (touched.has(at)) return true;
    return false;
  }

  /** Grows with every change of the document. */
  function changesSoFar(): number {
    heed(observer.takeRecords());
    return changeCount;
  }

  /** Resolves at the next change, at the latest after this time. */
  function nextChange(timeoutMs: number): Promise<boolean> {
    const before = changesSoFar();
    const until = performance.now() + timeoutMs;
    return new Promise((resolve) => {
      const check = () => {
        const hasChanged = changesSoFar() !== before;
        if (hasChanged || performance.now() >= until) resolve(hasChanged);
        else setTimeout(check, lookMsEach);
      };
      check();
    });
  }

  return { watch, take, touched, isTouched, changesSoFar, nextChange };
}

export type Momentary = ReturnType<typeof createMomentary>;
