import type { CounterAnswers, CounterAsk, CounterEntry } from "../counter-server.ts";

/** What a worker tells its supervisor. Numbers after the name are those of requests, which are answered. */
export type ToHub =
  /** Of the counter: the instance that asks, and what. */
  | readonly ["ask", number, string, readonly CounterAsk[]]
  | readonly ["enter", number, string]
  | readonly ["leave", number, readonly string[]]
  | readonly ["publish", string, string]
  | readonly ["subscribe", number, string]
  | readonly ["unsubscribe", string]
  | readonly ["count", number, string]
  /** Asks whether the other end still answers. */
  | readonly ["beat", number];

export interface Answers {
  ask: CounterAnswers | null;
  enter: CounterEntry;
  leave: true;
  subscribe: true;
  /** How many workers are subscribed to the topic. */
  count: number;
  beat: true;
}

export type Asked = keyof Answers;
export type Said<Name extends Asked> =
  Extract<ToHub, readonly [Name, number, ...unknown[]]> extends readonly [Name, number, ...infer Rest]
    ? Rest
    : never;

export type ToWorker = readonly ["answer", number, Answers[Asked]] | readonly ["publish", string, string];
