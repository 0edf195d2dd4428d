import type { Asking, ReservedChange } from "../contract.ts";

/** What a worker tells its supervisor. Numbers after the name are those of requests, which are answered. */
export type ToHub =
  /** The first message: the worker's id and everything that it has reserved. */
  | readonly ["enter", number, string, readonly ReservedChange[]]
  | readonly ["hit", number, string, number, number]
  | readonly ["grant", number, Asking]
  | readonly ["change", readonly ReservedChange[]]
  | readonly ["publish", string, string]
  | readonly ["subscribe", number, string]
  | readonly ["unsubscribe", string]
  /** Waits for its turn to write to the database. */
  | readonly ["write", number]
  | readonly ["written"]
  /** Asks whether the other end still answers. */
  | readonly ["beat", number]
  /** The worker stops, and has nothing reserved any more. */
  | readonly ["leave", number];

export type ToWorker = readonly ["answer", number, number] | readonly ["publish", string, string];
