import type { RequestFailure } from "../../observe/request-records.ts";

const FAILURES_KEPT = 50;
const MESSAGE_LENGTH_MAX = 300;

export interface RecentFailure extends RequestFailure {
  atMs: number;
  /** How often it repeated; the request id is the latest one's. */
  times: number;
}

const isAlike = (a: RequestFailure, b: RequestFailure) =>
  a.code === b.code &&
  a.status === b.status &&
  a.model === b.model &&
  a.backend === b.backend &&
  a.message === b.message;

/** The latest failures, newest first. The same one again is counted, so that a flood of one hides no other. */
export class RecentFailures {
  #failures: RecentFailure[] = [];

  add(failure: RequestFailure, atMs: number): void {
    const told = { ...failure, message: failure.message.slice(0, MESSAGE_LENGTH_MAX) };
    const index = this.#failures.findIndex((known) => isAlike(known, told));
    const times = index === -1 ? 1 : this.#failures.splice(index, 1)[0]!.times + 1;
    this.#failures.unshift({ ...told, atMs, times });
    if (this.#failures.length > FAILURES_KEPT) this.#failures.pop();
  }

  list(): readonly RecentFailure[] {
    return this.#failures;
  }

  /** Those of other instances among them. */
  listWith(others: readonly RecentFailure[]): RecentFailure[] {
    const all: RecentFailure[] = [];
    for (const failure of [...this.#failures, ...others].toSorted((a, b) => b.atMs - a.atMs)) {
      const known = all.find((each) => isAlike(each, failure));
      if (known) known.times += failure.times;
      else all.push({ ...failure });
    }
    return all.slice(0, FAILURES_KEPT);
  }
}
