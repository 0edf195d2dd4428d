/**
 * What only the page's own world knows. Whether it has set itself a timer since it was acted on, the tool's world asks
 * with an event whose name nobody else knows, and is answered by whether the event was called off. What it asks of the
 * browser that nobody is there to give, it tells through a binding of that name.
 */
import type { PermissionName } from "../emulation.ts";

/** What a page may ask for: to be closed, to be printed, or a permission. */
export type PageWish = "close" | "print" | PermissionName;

/** Runs in the page's own world, before its first script. */
export function followPage(secret: string): void {
  const { apply: call } = Reflect;
  const now = performance.now.bind(performance);
  const world = globalThis as unknown as Record<string, (...args: unknown[]) => unknown>;
  const tell = world[secret] as ((wish: PageWish) => void) | undefined;
  // Kept for a next document in the same window, and out of the way of scripts that list what there is.
  if (tell) Object.defineProperty(world, secret, { enumerable: false });

  /** `before` is told of each call; when it returns true, the call is not made. */
  const wrap = (
    owner: object | undefined,
    name: string,
    {
      before,
      after,
    }: { before?: (args: unknown[]) => unknown; after?: (args: unknown[], answer: unknown) => void },
  ) => {
    const holder = owner as Record<string, (...args: unknown[]) => unknown> | undefined;
    if (typeof holder?.[name] !== "function") return;
    holder[name] = new Proxy(holder[name], {
      apply(real, self, args) {
        if (before?.(args) === true) return undefined;
        const answer = call(real, self, args);
        after?.(args, answer);
        return answer;
      },
    });
  };

  const countMax = 1_000;
  const due = new Map<unknown, { setAtMs: number; dueAtMs: number }>();
  /** Later ones are not waited for. */
  const delayMsMax = 500;
  const later = setTimeout.bind(globalThis);
  const begin = ([, delay]: unknown[], id: unknown) => {
    const delayMs = Number(delay) || 0;
    if (delayMs > delayMsMax) return;
    const setAtMs = now();
    // Set after the page's own, it runs right after it, however late a busy machine runs both.
    later(() => due.delete(id), delayMs);
    if (due.size >= countMax) for (const [each, { dueAtMs }] of due) if (dueAtMs < setAtMs) due.delete(each);
    if (due.size < countMax) due.set(id, { setAtMs, dueAtMs: setAtMs + delayMs });
  };
  const end = ([id]: unknown[]) => {
    due.delete(id);
  };
  for (const name of ["setTimeout", "setInterval"]) wrap(globalThis, name, { after: begin });
  for (const name of ["clearTimeout", "clearInterval"]) wrap(globalThis, name, { before: end });
  document.addEventListener(secret, (event) => {
    const { deltaX: sinceMs, deltaY: untilMs, deltaZ: withinMs } = event as WheelEvent;
    for (const { setAtMs, dueAtMs } of due.values())
      if (setAtMs >= sinceMs && setAtMs <= untilMs && dueAtMs <= sinceMs + withinMs) {
        event.preventDefault();
        return;
      }
  });

  if (!tell) return;
  const wish = (what: PageWish) => ({ before: () => void tell(what) });
  wrap(globalThis, "print", wish("print"));
  // The tool closes it, and sees to it that a page is left. A page that script has not opened is not closed by script.
  wrap(globalThis, "close", {
    before: () => {
      if (self !== top || (!opener && history.length > 1)) return false;
      tell("close");
      return true;
    },
  });
  wrap(navigator.geolocation, "getCurrentPosition", wish("geolocation"));
  wrap(navigator.geolocation, "watchPosition", wish("geolocation"));
  wrap(globalThis.Notification, "requestPermission", wish("notifications"));
  wrap(navigator.clipboard, "read", wish("clipboard-read"));
  wrap(navigator.clipboard, "readText", wish("clipboard-read"));
  wrap(navigator, "requestMIDIAccess", wish("midi"));
  wrap(globalThis, "queryLocalFonts", wish("local-fonts"));
  wrap(globalThis, "getScreenDetails", wish("window-management"));
  wrap(navigator.mediaDevices, "getUserMedia", {
    before: ([wanted]) => {
      const { video, audio } = (wanted ?? {}) as MediaStreamConstraints;
      if (video) tell("camera");
      if (audio) tell("microphone");
    },
  });
}

export function createTimers(secret: string) {
  interface Span {
    sinceMs: number;
    untilMs: number;
  }

  /** Whether a timer is still to come that was set in this time, and is due so soon after its beginning. */
  function arePending({ sinceMs, untilMs }: Span, withinMs: number): boolean {
    const numbers = { deltaX: sinceMs, deltaY: untilMs, deltaZ: withinMs };
    return !document.dispatchEvent(new WheelEvent(secret, { cancelable: true, ...numbers }));
  }

  let moving = new WeakSet<Animation>();

  /** Remembers what already moves before an action. */
  function begin(): void {
    moving = new WeakSet(document.getAnimations());
  }

  /** Whether something moves that began in this time and ends within `withinMs`. */
  function isMoving({ sinceMs, untilMs }: Span, withinMs: number): boolean {
    return document.getAnimations().some((animation) => {
      const { playState, startTime, effect } = animation;
      const end = Number(effect?.getComputedTiming().endTime);
      // A new one may have no time yet, or that of a frame which was due before the action and drawn after it.
      const isNew = startTime === null || !moving.has(animation);
      const begunAtMs = Math.max(Number(startTime), isNew ? sinceMs : 0);
      return playState === "running" && begunAtMs >= sinceMs && begunAtMs <= untilMs && end <= withinMs;
    });
  }

  return { begin, arePending, isMoving };
}

export type Timers = ReturnType<typeof createTimers>;
