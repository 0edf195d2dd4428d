import type { Asking, RateLimit, ReservedChange } from "./contract.ts";

/** An instance that was silent for this long counts as dead, and its holds are released. */
export const ALIVE_MS = 15_000;
/** An empty counter answers after this time, so that all instances can send it their holds first. */
export const OPENS_AFTER_MS = 50;
/** Up to this limit each hit has an entry; above, hits that are close together share one. */
export const TIMES_MAX = 1024;

export type CounterAsk =
  | { hit: readonly RateLimit[] }
  | { grant: Asking }
  | { change: readonly ReservedChange[] };

/** To a hit: the index of the full limit and its `waitMs`, or nothing. To a grant: the units. To a change: nothing. */
export type CounterAnswer = readonly number[];

export interface CounterAnswers {
  answers: readonly CounterAnswer[];
  /** How many instances share the counter, including those that died recently. */
  instances: number;
}

export interface CounterEntry {
  /** The counter was empty: earlier counts are lost. */
  isNew: boolean;
  opensInMs: number;
}

export interface CounterServer {
  readonly available: boolean;
  /** Decides all asks in order and atomically, and keeps the instance alive. Null if it is not known. */
  ask(instance: string, asks: readonly CounterAsk[]): Promise<CounterAnswers | null>;
  enter(instance: string): Promise<CounterEntry>;
  leave(instances: readonly string[]): Promise<unknown>;
}
