import type { Cost, Quantity, Spent } from "../contract.ts";

/**
 * What the server that counts for all instances answers where others may hold something that they do not need: they
 * are to be asked for it, and the server after that once more.
 */
export const RECALL = -3;
/** How long others have to give back what they do not need. */
export const RECALL_WAIT_MS = 25;
/** For so long after a recall nobody gets anything ahead of need, and a refusal is final. */
export const CALM_MS = 1_000;
/** Ahead of need an instance gets at most this part of what is left: 1/16. */
export const LEFT_PER_AHEAD = 16;

/** One request's part of a purse. */
export interface PurseAsk {
  limit: Quantity;
  spent: Spent;
  unitsBeyond: number | null;
  cost: Cost;
  unitsMin: number;
  unitsMax: number;
  /** Others were asked for what they do not need: the answer is not `RECALL`. */
  isFinal: boolean;
}

/** What an instance says of a purse, and asks of it. */
export interface PurseOrder {
  name: string;
  /** What it holds from now on, before what it asks for: absolute, so that one lost message does not matter later. */
  base: Quantity;
  /** News of what is spent. */
  spent: Spent | null;
  asks: readonly PurseAsk[];
  /** What it would like to hold ahead of need. */
  ahead: Quantity;
}

export interface PurseAnswer {
  /** For each ask the units that were granted, `REFUSED` or `RECALL`. */
  units: readonly number[];
  /** What was given ahead of need. */
  ahead: Quantity;
  /** Little is left: what is not needed is to be given back at once. */
  isTight: boolean;
}

/** What an instance that enters says of a purse. */
export type Holding = Pick<PurseOrder, "name" | "base" | "spent">;

/** Counts what instances hold in some of the purses. */
export interface PurseServer {
  readonly available: boolean;
  /** Null when the server does not know the instance: it has lost its memory, or the instance was taken for dead. */
  hold(instance: string, orders: readonly PurseOrder[]): Promise<readonly PurseAnswer[] | null>;
  /**
   * Makes the instance known, with what it holds, and forgets the one that it was before. Returns the name of the
   * server's memory: another one when everything was lost in between.
   */
  enter(instance: string, before: string, holdings: readonly Holding[]): Promise<string>;
  /** False when the server does not know the instance. */
  beat(instance: string): Promise<boolean>;
  leave(instance: string): Promise<void>;
}

/** Hits of one key. */
export interface LimitOrder {
  key: string;
  limit: number;
  windowMs: number;
  /** Hits to be counted now. */
  hits: number;
  /** Hits that it would like to have ahead of need. */
  ahead: number;
  /** An earlier slice that ends now: its id, and how many of its hits were not used. */
  ended: { slice: string; unused: number } | null;
  isFinal: boolean;
}

export interface LimitAnswer {
  /** How many of the hits were counted. */
  counted: number;
  /** For those that were not: milliseconds until the next may be, or `RECALL`. */
  waitMs: number;
  /** A slice of hits that may be used within `sliceMs` of the asking: they are counted as of its end. */
  ahead: number;
  slice: string;
  sliceMs: number;
}

/** How long the hits of a slice may be used. */
export const SLICE_MS = 1_000;
/** How long at most where the slice is a small part of what is left. */
export const LONG_SLICE_MS = 10_000;

/** Counts the hits of all instances on some of the keys. */
export interface LimitServer {
  readonly available: boolean;
  hit(orders: readonly LimitOrder[]): Promise<readonly LimitAnswer[]>;
}
