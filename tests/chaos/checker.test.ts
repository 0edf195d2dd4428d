import { describe, expect, test } from "bun:test";
import { leaked } from "./canaries.ts";
import { check } from "./checker.ts";
import type { Evidence } from "./evidence.ts";
import { planOf } from "./plan.ts";
import type { Concluded, Invoked, JournalRecord } from "./records.ts";
import { schedule } from "./schedule.ts";

const canaries = {
  prompt: "canary-9f1c",
  upstreamKey: "sk-canary-77aa01",
  userKeys: ["service-5d2e-1", "service-5d2e-2"],
};

const invoked = (op: number, rest: Partial<Invoked> = {}): Invoked => ({
  type: "invoke",
  op,
  atMs: 400,
  instance: "instance 0",
  model: "m",
  stream: true,
  ...rest,
});
const concluded = (op: number, rest: Partial<Concluded> = {}): Concluded => ({
  type: "ok",
  op,
  atMs: 2_000,
  firstByteMs: 1_500,
  status: 200,
  requestId: `r${op}`,
  ended: "done",
  pieces: 3,
  error: "",
  ...rest,
});
const call = (
  op: number,
  rest: { id?: number; atMs?: number; endedMs?: number; by?: "upstream" | "gateway" } = {},
) => {
  const { id = op, atMs = 500, endedMs = 1_900, by = "upstream" } = rest;
  const place = { upstream: "a", id };
  return [
    {
      event: "request",
      ...place,
      atMs,
      op,
      bytes: `authorization: Bearer sk-canary-77aa01 op-${op} canary-9f1c`,
    },
    { event: "sent", ...place, atMs: atMs + 10, bytes: "data: word" },
    { event: "ended", ...place, atMs: endedMs, by },
  ] satisfies JournalRecord[];
};
const row = (op: number) => ({
  id: `r${op}`,
  ref: `op-${op}`,
  promptTokens: 9,
  completionTokens: 4,
  costUsd: 0.013,
  points: 1,
});

/** An answered stream, one that its client left, one that a kill took, and one that was refused: nothing is wrong. */
const sound = (): Evidence => ({
  clients: [
    invoked(1),
    concluded(1),
    invoked(2),
    concluded(2, { type: "unknown", ended: "left", pieces: 1 }),
    invoked(3),
    concluded(3, { type: "unknown", ended: "cut", pieces: 1, error: "ECONNRESET" }),
    invoked(4),
    concluded(4, { type: "fail", ended: "error", status: 500, error: "all backends unhealthy" }),
  ],
  upstreams: [
    ...call(1),
    ...call(2, { endedMs: 2_050, by: "gateway" }),
    ...call(3, { endedMs: 2_001, by: "gateway" }),
  ],
  faults: [{ kind: "kill", target: "instance 0", beganMs: 2_000, endedMs: 2_500 }],
  books: {
    rows: [row(1), row(2)],
    ledgerProblems: [],
    accounts: [
      { id: "system:issued", type: "system", balance: -100 },
      { id: "group:g", type: "group", balance: 98 },
      { id: "system:spent", type: "system", balance: 2 },
    ],
    pool: { issued: 100, left: 98, paid: 2, owed: 0 },
  },
  instances: [
    {
      name: "instance 0",
      holds: 0,
      callsInFlight: 0,
      journalRows: 0,
      rowsLost: 0,
      rssMbBefore: 100,
      rssMbAfter: 110,
    },
  ],
  sharedHolds: [],
  texts: [{ where: "log of instance 0", text: "listening", never: ["prompt", "upstreamKey", "userKeys"] }],
  told: [{ what: "indexes", answers: ["0 a", "0 a"] }],
  canaries,
});

test("the checker finds nothing in a sound run", () => {
  expect(check(sound())).toEqual([]);
});

/** Each way of doctoring the records, and the rule that must tell of it. */
const doctored: [string, string, (evidence: Evidence) => unknown][] = [
  ["a lost row", "lost", ({ books }) => books.rows.shift()],
  [
    "a lost row of a request that its client left",
    "lost",
    (evidence) => {
      evidence.faults = [];
      evidence.clients.splice(4, 2);
      evidence.books.rows.pop();
    },
  ],
  ["a doubled row", "doubled", ({ books }) => books.rows.push({ ...row(1), id: "other" })],
  ["a row of nobody's", "stray", ({ books }) => books.rows.push(row(99))],
  [
    "a row without an identifiable request",
    "stray",
    ({ books }) => books.rows.push({ ...row(1), ref: null }),
  ],
  ["a row of a refused request", "unserved", ({ books }) => books.rows.push(row(4))],
  ["a missing end", "no end", ({ clients }) => clients.splice(1, 1)],
  [
    "a client that waited in vain",
    "no end",
    ({ clients }) => Object.assign(clients[1]!, { ended: "timeout", type: "unknown" }),
  ],
  [
    "a stream without [DONE] or error",
    "cut",
    (evidence) => {
      evidence.faults = [];
    },
  ],
  [
    "a stream cut by a restart in order",
    "cut",
    ({ faults }) => Object.assign(faults[0]!, { kind: "restart" }),
  ],
  [
    "a stream cut long after the fault",
    "cut",
    ({ faults }) => Object.assign(faults[0]!, { beganMs: -9_000, endedMs: -8_000 }),
  ],
  ["an upstream left running", "running", ({ upstreams }) => upstreams.splice(5, 1)],
  [
    "an upstream that ran on after an abort",
    "left running",
    ({ upstreams }) => Object.assign(upstreams[5]!, { atMs: 90_000 }),
  ],
  [
    "a request that was sent twice",
    "repeated",
    ({ upstreams }) => upstreams.push(...call(1, { id: 50, atMs: 600 })),
  ],
  [
    "a retry after the first byte",
    "retried",
    ({ upstreams }) => upstreams.push(...call(1, { id: 50, atMs: 1_600 })),
  ],
  [
    "a hold that outlived its request",
    "holds",
    ({ instances }) => Object.assign(instances[0]!, { holds: 1 }),
  ],
  ["a hold that Redis still has", "holds", ({ sharedHolds }) => sharedHolds.push("group:g")],
  ["a call under way", "in flight", ({ instances }) => Object.assign(instances[0]!, { callsInFlight: 2 })],
  [
    "a journal that was not settled",
    "journal",
    ({ instances }) => Object.assign(instances[0]!, { journalRows: 3 }),
  ],
  ["rows that were given up", "lost", ({ instances }) => Object.assign(instances[0]!, { rowsLost: 1 })],
  [
    "memory that does not return",
    "memory",
    ({ instances }) => Object.assign(instances[0]!, { rssMbAfter: 500 }),
  ],
  ["books that do not add up", "sums", ({ books }) => Object.assign(books.accounts[2]!, { balance: 3 })],
  ["a pool that paid more than it lost", "sums", ({ books }) => Object.assign(books.pool, { paid: 3 })],
  ["a balance below zero", "negative", ({ books }) => Object.assign(books.accounts[1]!, { balance: -1 })],
  ["a figure below zero", "negative", ({ books }) => Object.assign(books.rows[0]!, { completionTokens: -4 })],
  ["what the ledger itself finds", "ledger", ({ books }) => books.ledgerProblems.push("balance: wrong")],
  [
    "connections that are told different things",
    "as one",
    ({ told }) => told.push({ what: "indexes", answers: ["0 a", "1 a"] }),
  ],
  ["a prompt in a log", "canary", ({ texts }) => (texts[0]!.text += `prompt was ${canaries.prompt}`)],
  [
    "an upstream's key in an error",
    "canary",
    ({ clients }) => Object.assign(clients[7]!, { error: `no: ${canaries.upstreamKey}` }),
  ],
  [
    "an upstream's key in Base64",
    "canary",
    ({ texts }) => Object.assign(texts[0]!, { text: btoa(`user:${canaries.upstreamKey}`) }),
  ],
  [
    "a user's key at the upstream",
    "canary",
    ({ upstreams }) => Object.assign(upstreams[0]!, { bytes: canaries.userKeys[1] }),
  ],
];

describe("the checker finds", () => {
  test.each(doctored)("%s (%s)", (_what, rule, doctor) => {
    const evidence = sound();
    doctor(evidence);
    expect(check(evidence).map((problem) => problem.rule)).toContain(rule);
  });
});

test("secrets are found in any form, and nothing else is", () => {
  const secret = "sk-canary-77aa01-and-more";
  for (const before of ["", "a", "ab", "abc"]) {
    expect(leaked(btoa(`${before}${secret}>>>`), [secret])).toEqual([secret]);
    expect(leaked(Buffer.from(`${before}${secret}`).toString("base64url"), [secret])).toEqual([secret]);
  }
  expect(leaked(Buffer.from(secret).toString("hex"), [secret])).toEqual([secret]);
  expect(leaked("sk-canary-77aa01 and nothing more", [secret])).toEqual([]);
});

describe("a run", () => {
  const targets = {
    "instance 0": ["kill", "freeze"],
    "line redis": ["cut", "stall"],
    clock: ["jump"],
  } as const;
  const pace = { pauseMsMax: 1_000, holdMsMax: 2_000 };
  const first = (seed: number, count: number) => [...schedule(seed, targets, pace).take(count)];

  test("has the faults that its seed says, each kind before any comes again", () => {
    expect(first(42, 50)).toEqual(first(42, 50));
    expect(first(42, 50)).not.toEqual(first(43, 50));
    const kinds = first(42, 5).map(({ target, kind }) => `${kind} ${target}`);
    expect(new Set(kinds).size).toBe(5);
  });

  test("has the requests that its seed says, of every kind", () => {
    const plans = (seed: number) => Array.from({ length: 500 }, (_, op) => planOf(seed, op));
    expect(plans(42)).toEqual(plans(42));
    expect(plans(42)).not.toEqual(plans(43));
    const all = plans(42);
    expect(new Set(all.map(({ behaviour }) => behaviour)).size).toBe(5);
    expect(new Set(all.map(({ model }) => model)).size).toBe(3);
    expect(all.some(({ leavesAfter }) => leavesAfter === 0)).toBe(true);
  });
});
