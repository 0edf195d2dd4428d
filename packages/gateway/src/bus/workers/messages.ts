import type { Holding, LimitAnswer, LimitOrder, PurseAnswer, PurseOrder } from "../slices/contract.ts";

/** What a worker tells its supervisor. Numbers after the name are those of requests, which are answered. */
export type ToHub =
  /** The worker's id, the one under which it holds from now on, and (a part of) what it holds. */
  | readonly ["enter", number, string, string, readonly Holding[]]
  | readonly ["hold", number, string, readonly PurseOrder[]]
  /** Asks whether what it holds under this id is still known. */
  | readonly ["lives", number, string]
  /** The worker stops, and holds nothing any more. */
  | readonly ["leave", number, string]
  | readonly ["hit", number, readonly LimitOrder[]]
  | readonly ["publish", string, string]
  | readonly ["subscribe", number, string]
  | readonly ["unsubscribe", string]
  /** Waits for its turn to write to the database. */
  | readonly ["write", number]
  | readonly ["written"]
  /** Asks whether the other end still answers. */
  | readonly ["beat", number];

/** What each request is answered with. */
export interface Answers {
  enter: string;
  hold: readonly PurseAnswer[] | null;
  lives: boolean;
  leave: true;
  hit: readonly LimitAnswer[];
  subscribe: true;
  write: true;
  beat: true;
}

export type Asked = keyof Answers;
/** What a request says after its number. */
export type Said<Name extends Asked> =
  Extract<ToHub, readonly [Name, number, ...unknown[]]> extends readonly [Name, number, ...infer Rest]
    ? Rest
    : never;

export type ToWorker = readonly ["answer", number, Answers[Asked]] | readonly ["publish", string, string];
