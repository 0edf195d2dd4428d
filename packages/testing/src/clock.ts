import { type Clock, systemClock } from "@model-gateway/wire/clock";

interface Task {
  dueMs: number;
  periodMs: number | null;
  run: () => void;
}

/** A clock that stands still until it is told to move. */
export class ManualClock implements Clock {
  #tasks = new Set<Task>();
  constructor(public nowMs = Date.parse("2026-11-15T12:00:00Z")) {}

  now(): number {
    return this.nowMs;
  }
  elapsed(): number {
    return this.nowMs;
  }
  after(delayMs: number, run: () => void): () => void {
    return this.#add({ dueMs: this.nowMs + delayMs, periodMs: null, run });
  }
  every(periodMs: number, run: () => void): () => void {
    return this.#add({ dueMs: this.nowMs + periodMs, periodMs, run });
  }
  #add(task: Task): () => void {
    this.#tasks.add(task);
    return () => this.#tasks.delete(task);
  }

  /** When the next task falls due; infinite where there is none. */
  get nextDueMs(): number {
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { dueMs } of this.#tasks) nextMs = Math.min(nextMs, dueMs);
    return nextMs;
  }

  /** Moves time on, running what falls due in order. */
  advance(ms: number): void {
    const target = this.nowMs + ms;
    for (;;) {
      let due: Task | null = null;
      for (const task of this.#tasks)
        if (task.dueMs <= target && task.dueMs < (due?.dueMs ?? Infinity)) due = task;
      if (!due) break;
      this.nowMs = Math.max(this.nowMs, due.dueMs);
      if (due.periodMs === null) this.#tasks.delete(due);
      else due.dueMs += due.periodMs;
      due.run();
    }
    this.nowMs = target;
  }

  /** Time in which nothing ran: what is due stays due after the same time as before. */
  jump(ms: number): void {
    for (const task of this.#tasks) task.dueMs += ms;
    this.nowMs += ms;
  }
}

const HURRIED_PERIOD_MS = 200;
/** Real time, in which nothing that is done again and again has long to wait. */
export const hurriedClock: Clock = {
  ...systemClock,
  every: (periodMs, task) => systemClock.every(Math.min(periodMs, HURRIED_PERIOD_MS), task),
};
