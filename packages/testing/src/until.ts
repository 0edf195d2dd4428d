/** Generous, because the machine may be busy; a test that passes does not wait for it. */
const PATIENCE_MS = 30_000;
const POLL_MS = 5;

/** Waits for a condition that no event announces; fails with `what` when it does not come true in time. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = PATIENCE_MS,
): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadlineMs) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await Bun.sleep(POLL_MS);
  }
}
