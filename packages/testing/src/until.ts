/** Generous, because the machine may be busy; a test that passes does not wait for it. */
const PATIENCE_MS = 30_000;
const POLL_MS = 5;
/** What asks a service each time is asked less often the longer it takes: the answers take its processor from others. */
const ASKED_MS_MAX = 50;

/** Waits for a condition that no event announces; fails with `what` when it does not come true in time. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = PATIENCE_MS,
): Promise<void> {
  const beganMs = Date.now();
  for (;;) {
    const answer = condition();
    if (await answer) return;
    const waitedMs = Date.now() - beganMs;
    if (waitedMs > timeoutMs) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await Bun.sleep(answer instanceof Promise ? Math.min(POLL_MS + waitedMs / 20, ASKED_MS_MAX) : POLL_MS);
  }
}
