/**
 * Judges a click by the events that the page gets, not by a look at the page before or after them. Between that look
 * and the event the element may have moved, and `:hover` alone can move it.
 */
import type { Brief } from "./brief.ts";
import type { Dom } from "./dom.ts";
import type { Hit } from "./hit.ts";

export interface Verdict {
  /** Null while no event has arrived; true once the page got the input at the target; false when it was kept from it. */
  hit: boolean | null;
  /** What the events were aimed at, in words, when that was not the target, or when there was none. */
  reason: string;
  /** The press arrived at the target, but no click followed. */
  isUnclicked: boolean;
  /** A file field was clicked, so the browser asks for files. */
  isFileAsked: boolean;
}

/** What the pointer is about to do. */
export interface Expected {
  /** Null: any element at that position. */
  element: Element | null;
  /** A press alone is over with its first event; a click needs all of its events. */
  until: "press" | "click";
  clicks: number;
  /** When the operation is given up; what comes later is not judged any more. */
  timeoutMs: number;
}

/** Names in the tool's own world of a document, shared by the script that runs first in it and by the agent. */
export interface World {
  browserToolInput?: (event: Event) => void;
  browserToolJudge?: (event: Event) => void;
}

/** Runs in each new document before its own script, so that no listener of the page comes before this one. */
export function listenFirst(): void {
  const world = globalThis as World;
  world.browserToolInput ??= (event) => world.browserToolJudge?.(event);
  for (const name of "pointerdown mousedown touchstart pointerup mouseup touchend click auxclick dblclick contextmenu dragstart mousemove keydown beforeinput input".split(
    " ",
  ))
    addEventListener(name, world.browserToolInput, { capture: true });
}

interface WatchTools {
  /** Resolves when the frame that comes next is drawn. */
  frame: () => Promise<void>;
  dom: Dom;
  hit: Hit;
  brief: Brief;
  listenFirst: () => void;
}

export function createWatch({ dom, hit, brief, frame, listenFirst: listen }: WatchTools) {
  interface Armed extends Expected {
    endsAt: number;
    hit: boolean | null;
    reason: string;
    clicksSeen: number;
    /** The page has made something of the press: later events go where it wants them. */
    isTakenOver: boolean;
    /** Where the element was when it was pressed. */
    pressedAt: string;
  }
  (globalThis as World).browserToolJudge = judge;
  let armed: Armed | null = null;
  let dragStart: Event | null = null;
  let isFileAsked = false;
  /** The frame that follows the last input. It is waited for from the input on, and not only when somebody asks. */
  let drawn: Promise<void> | null = null;
  /** The page was asked already whether it lets a text in. */
  let isAsked = false;
  /** Where the pointer was last seen, and over what. */
  let resting: { x: number; y: number; over: WeakRef<Element> } | null = null;

  function arm(expected: Expected): void {
    // Each time, because document.open() takes all listeners away; one that is there is not added again.
    listen();
    dragStart = null;
    isFileAsked = false;
    armed = {
      ...expected,
      endsAt: performance.now() + expected.timeoutMs,
      hit: null,
      reason: "",
      clicksSeen: 0,
      isTakenOver: false,
      pressedAt: "",
    };
  }

  /** The element that the browser chose. Inside of a closed shadow root it says only the host. */
  function targetOf(event: Event): Element | null {
    const target = event.composedPath()[0];
    if (!(target instanceof Element)) return null;
    const root = target.shadowRoot === null ? dom.shadowOf(target) : null;
    if (!root || !(event instanceof MouseEvent)) return target;
    return hit.deepestIn(root, { x: event.clientX, y: event.clientY }) ?? target;
  }

  function refuse(event: Event): void {
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  function placeOf(element: Element): string {
    const { x, y, width, height } = element.getBoundingClientRect();
    return [x, y, width, height].join();
  }

  const isDown = (type: string) => /down$|^touchstart$/.test(type);
  const isUp = (type: string) => /up$|^touchend$/.test(type);

  /** Inserts at the caret. The page has been asked about it; a browser that asks again is not heard. */
  function insertText(text: string): void {
    listen();
    isAsked = true;
    document.execCommand("insertText", false, text);
    isAsked = false;
  }

  function judge(event: Event): void {
    if (event.type === "beforeinput") {
      if (isAsked) event.stopImmediatePropagation();
      return;
    }
    const [target] = event.composedPath();
    if (event.type === "mousemove") {
      const { clientX: x, clientY: y } = event as MouseEvent;
      if (event.isTrusted && target instanceof Element) resting = { x, y, over: new WeakRef(target) };
      return;
    }
    // Most pages click the field by script.
    if (event.type === "click" && target instanceof HTMLInputElement && target.type === "file")
      isFileAsked = true;
    if (!event.isTrusted) return;
    drawn = frame();
    if (event.type === "dragstart") dragStart = event;
    if (!armed) return;
    if (performance.now() > armed.endsAt) {
      armed = null;
      return;
    }
    if (armed.hit === false) {
      refuse(event);
      return;
    }
    const { element } = armed;
    if (event.type === "keydown" || event.type === "input") return;
    const isClick = !isDown(event.type) && !isUp(event.type);
    if (isClick) {
      if (!/^(click|auxclick)$/.test(event.type) || armed.clicksSeen >= armed.clicks) return;
      armed.clicksSeen++;
    }
    const got = targetOf(event);
    if (!got) return;
    if (element === null) {
      armed.hit = true;
      armed.reason ||= brief(got);
      return;
    }
    // Once it was pressed it may go; one that has gone before that was not hit.
    const isGone = armed.hit === true && !element.isConnected;
    if (armed.isTakenOver || isGone || hit.reaches(element, got)) {
      armed.hit = true;
      if (isDown(event.type)) armed.pressedAt = placeOf(element);
      return;
    }
    if (isUp(event.type)) {
      // The page has seen the press, so it has to see its end too. If the element has moved away from under the
      // pointer, the click that follows is refused; if it is where it was, the page has put something over it.
      if (armed.hit && placeOf(element) === armed.pressedAt) armed.isTakenOver = true;
      else armed.reason = `the press reached it, but the button was let go over ${brief(got)}`;
      return;
    }
    armed.hit = false;
    armed.reason ||= element.isConnected
      ? `${brief(got)} was hit instead`
      : "the page took it away when the pointer came";
    refuse(event);
  }

  /** Ends the watch. */
  function verdict(): Verdict {
    const { hit: isHit = null, reason = "", element = null } = armed ?? {};
    const isUnclicked =
      isHit === true &&
      armed?.until === "click" &&
      armed.clicksSeen < armed.clicks &&
      element?.isConnected === true;
    const answer = { hit: isHit, reason, isUnclicked, isFileAsked };
    armed = null;
    isFileAsked = false;
    return answer;
  }

  /** A drag that the page has not called off is the browser's now, and mouse events no longer reach the page. */
  const hasDragBegun = () => dragStart !== null && !dragStart.defaultPrevented;

  /**
   * Whether something else has come under the resting pointer. Pages take that for an accident and wait for the
   * pointer to move before they believe it.
   */
  function hasSlippedUnder(): boolean {
    if (!resting) return false;
    const over = resting.over.deref();
    const now = document.elementFromPoint(resting.x, resting.y);
    return now !== null && over !== undefined && now !== over && !now.contains(over);
  }

  /** Resolves when the page has drawn what the last input led to. */
  function afterInput(): Promise<void> {
    const waited = drawn ?? frame();
    drawn = null;
    return waited;
  }

  return { arm, insertText, verdict, hasDragBegun, hasSlippedUnder, afterInput };
}

export type Watch = ReturnType<typeof createWatch>;
