export interface Load {
  /** Answers by status; 0 stands for a request that got none. */
  statuses: Map<number, number>;
  /** What went wrong first, for the report of a failed test. */
  failures: string[];
  sent: number;
  stop(): Promise<void>;
}

const FAILURES_KEPT = 5;

/** Light load: what is tested is what happens to requests, not how many there can be. */
const PAUSE_MS = 5;

/** Requests one after the other on each of `workers` lanes, until it is stopped. */
export function startLoad(
  workers: number,
  request: (sequence: number) => Promise<Response>,
  pauseMs = PAUSE_MS,
): Load {
  let stopped = false;
  const load: Load = { statuses: new Map(), failures: [], sent: 0, stop: async () => {} };
  const count = (status: number) => load.statuses.set(status, (load.statuses.get(status) ?? 0) + 1);
  const lane = async () => {
    while (!stopped) {
      try {
        const response = await request(load.sent++);
        const text = await response.text();
        count(response.status);
        if (!response.ok && load.failures.length < FAILURES_KEPT)
          load.failures.push(`${response.status} ${text}`);
      } catch (error) {
        count(0);
        if (load.failures.length < FAILURES_KEPT) load.failures.push(String(error));
      }
      await Bun.sleep(pauseMs);
    }
  };
  const lanes = Array.from({ length: workers }, lane);
  load.stop = async () => {
    stopped = true;
    await Promise.all(lanes);
  };
  return load;
}
