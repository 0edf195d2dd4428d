import type { Asking, RateLimit, ReservedChange } from "./contract.ts";

/** An instance that has said nothing for this long counts as dead, and what it holds is freed. */
export const ALIVE_MS = 15_000;
/** A counter that knew nobody opens after this time: by then the others have told it what they hold. */
export const OPENS_AFTER_MS = 50;
/** Up to this limit each hit is remembered with its time; beyond it hits that come close together share one. */
export const TIMES_MAX = 1024;

export type CounterAsk =
  | { hit: readonly RateLimit[] }
  | { grant: Asking }
  | { change: readonly ReservedChange[] };

/** Of a hit: which limit is full and for how long, or nothing. Of a grant: the units. Of a change: nothing. */
export type CounterAnswer = readonly number[];

export interface CounterAnswers {
  answers: readonly CounterAnswer[];
  /** How many instances share the counter, the dead ones of the last moment among them. */
  instances: number;
}

export interface CounterEntry {
  /** Nobody had entered before: whatever was counted has been forgotten. */
  isNew: boolean;
  opensInMs: number;
}

export interface CounterServer {
  readonly available: boolean;
  /** Decides all asks, in order and in one step. Null when the instance is not known. Shows that the instance lives. */
  ask(instance: string, asks: readonly CounterAsk[]): Promise<CounterAnswers | null>;
  enter(instance: string): Promise<CounterEntry>;
  leave(instances: readonly string[]): Promise<unknown>;
}
