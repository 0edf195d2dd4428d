/** What is worth another try, and when. */
import { abortableDelay, backoffMs } from "../time.ts";

const RETRY_DELAY_MS = 500;
const RETRY_DELAY_MAX_MS = 30_000;
/** A server that asks for more patience than this is not waited for any longer than this. */
const RETRY_AFTER_MAX_MS = 5 * 60_000;

/** The server cannot answer now, and may say when to come back. */
export class BusyError extends Error {
  readonly retryAfterMs: number;

  /** `response` is missing when there was none. */
  constructor(message: string, response?: Response) {
    super(message);
    this.retryAfterMs = response ? retryAfterMs(response) : 0;
  }
}

export const isBusy = ({ status }: Response): boolean =>
  status === 408 || status === 425 || status === 429 || status >= 500;

/** Seconds, or a date (RFC 9110 section 10.2.3); 0 when it is missing or invalid. */
function retryAfterMs(response: Response): number {
  const text = response.headers.get("retry-after") ?? "";
  const waitMs = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(waitMs) ? 0 : Math.min(Math.max(0, waitMs), RETRY_AFTER_MAX_MS);
}

/** Waits before the next try: longer after each failure, and as long as a busy server asked for. */
export async function pauseAfter(
  error: unknown,
  pause: { failures: number; signal: AbortSignal; retryDelayMs?: number },
): Promise<void> {
  const initialMs = pause.retryDelayMs ?? RETRY_DELAY_MS;
  const delayMs = backoffMs(pause.failures, { initialMs, maxMs: RETRY_DELAY_MAX_MS });
  await abortableDelay(Math.max(delayMs, error instanceof BusyError ? error.retryAfterMs : 0), pause.signal);
}
