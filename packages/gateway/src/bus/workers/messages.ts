import type { CounterAnswers, CounterAsk, CounterEntry } from "../counter-server.ts";

/** Messages of a worker to its supervisor. Those with a number after the name are requests, which are answered. */
export type ToHub =
  | readonly ["ask", number, string, readonly CounterAsk[]]
  | readonly ["enter", number, string]
  | readonly ["leave", number, readonly string[]]
  | readonly ["publish", string, string]
  | readonly ["subscribe", number, string]
  | readonly ["unsubscribe", string]
  | readonly ["count", number, string]
  | readonly ["beat", number];

export interface Answers {
  ask: CounterAnswers | null;
  enter: CounterEntry;
  leave: true;
  subscribe: true;
  count: number;
  beat: true;
}

export type Asked = keyof Answers;
export type Said<Name extends Asked> =
  Extract<ToHub, readonly [Name, number, ...unknown[]]> extends readonly [Name, number, ...infer Rest]
    ? Rest
    : never;

export type ToWorker = readonly ["answer", number, Answers[Asked]] | readonly ["publish", string, string];
