/**
 * Whether the page has set itself a timer since it was acted on, so that an action knows that more is to come. The
 * page's own world keeps the list; the tool's world asks with an event whose name nobody else knows, and is answered
 * by whether the event was called off.
 */

/** Runs in the page's own world, before its first script. */
export function followTimers(question: string): void {
  const { apply: call } = Reflect;
  const now = performance.now.bind(performance);
  const countMax = 1_000;
  const due = new Map<unknown, { setAtMs: number; dueAtMs: number }>();
  const world = globalThis as unknown as Record<string, (...args: unknown[]) => unknown>;
  const wrap = (name: string, note: (args: unknown[], answer: unknown) => void) => {
    world[name] = new Proxy(world[name]!, {
      apply(real, self, args) {
        const answer = call(real, self, args);
        note(args, answer);
        return answer;
      },
    });
  };
  const begin = ([, delayMs]: unknown[], id: unknown) => {
    const setAtMs = now();
    if (due.size >= countMax) for (const [each, { dueAtMs }] of due) if (dueAtMs < setAtMs) due.delete(each);
    if (due.size < countMax) due.set(id, { setAtMs, dueAtMs: setAtMs + (Number(delayMs) || 0) });
  };
  const end = ([id]: unknown[]) => due.delete(id);
  wrap("setTimeout", begin);
  wrap("setInterval", begin);
  wrap("clearTimeout", end);
  wrap("clearInterval", end);
  /** A timer is late by this much before it counts as over. */
  const lateMs = 10;
  document.addEventListener(question, (event) => {
    const { deltaX: sinceMs, deltaY: untilMs, deltaZ: withinMs } = event as WheelEvent;
    for (const { setAtMs, dueAtMs } of due.values())
      if (
        setAtMs >= sinceMs &&
        setAtMs <= untilMs &&
        dueAtMs <= sinceMs + withinMs &&
        dueAtMs + lateMs >= now()
      ) {
        event.preventDefault();
        return;
      }
  });
}

export function createTimers(question: string) {
  interface Span {
    sinceMs: number;
    untilMs: number;
  }

  /** Whether a timer is still to come that was set in this time, and is due so soon after its beginning. */
  function arePending({ sinceMs, untilMs }: Span, withinMs: number): boolean {
    const numbers = { deltaX: sinceMs, deltaY: untilMs, deltaZ: withinMs };
    return !document.dispatchEvent(new WheelEvent(question, { cancelable: true, ...numbers }));
  }

  /** Whether something moves that began in this time and comes to an end as soon. */
  function isMoving({ sinceMs, untilMs }: Span, withinMs: number): boolean {
    return document.getAnimations().some(({ playState, startTime, effect }) => {
      const end = Number(effect?.getComputedTiming().endTime);
      // One that has just begun has no time yet.
      const begunAtMs = startTime === null ? sinceMs : Number(startTime);
      return playState === "running" && begunAtMs >= sinceMs && begunAtMs <= untilMs && end <= withinMs;
    });
  }

  return { arePending, isMoving };
}

export type Timers = ReturnType<typeof createTimers>;
