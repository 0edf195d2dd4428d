import { MULTIPLIER_ONE } from "../../src/kernel/payer.ts";
import type { RequestLine } from "../../src/kernel/request-row.ts";
import type { ChargedEntry } from "../../src/rooms/metering/journal/codec.ts";
import type { RequestRow } from "../../src/rooms/usage/index.ts";

/** A chat of a key that was answered. */
const ANSWERED = {
  attribution: "0a1b2c3d",
  project: "default",
  groupId: null,
  surface: "/v1/chat/completions",
  model: "m",
  modelAsked: null,
  backend: "first",
  reason: "only_backend",
  status: 200,
  code: null,
  message: null,
  attempts: 1,
  failedAttempts: null,
  queueMs: 1,
  firstTokenMs: null,
  durationMs: 20,
  promptTokens: 10,
  completionTokens: 20,
  estimated: false,
  costNanoUsd: 13_500,
  channel: "gateway",
  refId: null,
  clientIp: null,
} satisfies Partial<RequestLine>;

const ids = (atMs: number) => ({
  requestId: Bun.randomUUIDv7(),
  userId: crypto.randomUUID() as string,
  keyId: crypto.randomUUID() as string,
  atMs,
});

/** Its row, but for these fields. */
export const requestRow = (fields: Partial<RequestRow> = {}): RequestRow => ({
  ...ANSWERED,
  ...ids(Date.now()),
  points: null,
  accountType: null,
  ...fields,
});

/** Its line in the journal, but for these fields. */
export const journalEntry = (fields: Partial<ChargedEntry> = {}): ChargedEntry => ({
  ...ANSWERED,
  ...ids(1_763_208_000_000),
  costMultiplierMicros: MULTIPLIER_ONE,
  hold: "quota",
  tier: "free",
  budgets: 0,
  ...fields,
});
