import type { RequestRow } from "@model-gateway/gateway/rooms/usage/index.ts";
import { CHAT_PRICES } from "./prices.ts";

const DAYS = 30;
const DAY_MS = 24 * 3_600_000;
const REQUESTS_ON_A_WEEKDAY = 70;
const REQUESTS_ON_A_WEEKEND = 15;
const REQUESTS_LATELY = 40;
const LATELY_MS = 6 * 3_600_000;
const PROJECTS = ["default", "thesis", "website"] as const;
const REFERENCES = [null, null, "nightly-eval", "paper-draft"] as const;

/** Colleagues, so that a group has members who spend; nobody can sign in as them. */
export const COLLEAGUES = [
  { id: "0a0a0a0a-0000-4000-8000-000000000001", email: "ada@example.com", name: "Ada", share: 0.5 },
  { id: "0a0a0a0a-0000-4000-8000-000000000002", email: "grace@example.com", name: "Grace", share: 0.2 },
] as const;

interface Asker {
  userId: string;
  /** Null: all is done in the console. */
  key: { id: string; prefix: string } | null;
}

export interface HistoryOptions extends Asker {
  nowMs: number;
}

/** A repeatable stream of numbers in [0, 1), so that every demonstration looks the same. */
function repeatable(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** As the demonstration registers its model server. */
const BACKEND = "demo";
const FIRST_TOKEN_MS = 180;
const TOKENS_PER_SECOND = 70;
/** One in so many was refused for its pace, or failed upstream. */
const REFUSED_EVERY = 41;
const FAILED_EVERY = 29;

/** One request of the past month, somewhere in working hours. */
function pastRequest(dayStartMs: number, random: () => number, { userId, key }: Asker): RequestRow {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() ** 1.6 * list.length)]!;
  const price = pick(CHAT_PRICES);
  const promptTokens = Math.round(200 + random() ** 3 * 12_000);
  const completionTokens = Math.round(40 + random() ** 2 * 1_500);
  const viaConsole = random() < 0.15 || key === null;
  const firstTokenMs = FIRST_TOKEN_MS + Math.round(random() * 400);
  return {
    requestId: Bun.randomUUIDv7(undefined, dayStartMs),
    atMs: dayStartMs + Math.round((8 + random() * 11) * 3_600_000),
    userId,
    keyId: viaConsole ? null : key.id,
    attribution: viaConsole ? `jwt-${userId}` : key.prefix,
    project: viaConsole ? null : pick(PROJECTS),
    groupId: null,
    surface: viaConsole ? "chat.send" : "/v1/chat/completions",
    model: price.match,
    modelAsked: null,
    backend: BACKEND,
    reason: "only_backend",
    status: 200,
    code: null,
    message: null,
    attempts: 1,
    failedAttempts: null,
    queueMs: 1,
    firstTokenMs,
    durationMs: firstTokenMs + Math.round((completionTokens * 1_000) / TOKENS_PER_SECOND),
    promptTokens,
    completionTokens,
    estimated: false,
    // Dollars per million tokens are thousands of nanodollars per token.
    costNanoUsd: Math.round(promptTokens * price.input * 1_000 + completionTokens * price.output * 1_000),
    channel: viaConsole ? "rpc" : "gateway",
    points: null,
    accountType: null,
    refId: viaConsole ? null : pick(REFERENCES),
    clientIp: null,
  };
}

/** The same request, not answered. */
const unanswered = (
  row: RequestRow,
  failure: Pick<RequestRow, "status" | "code" | "message">,
): RequestRow => ({
  ...row,
  ...failure,
  requestId: Bun.randomUUIDv7(undefined, row.atMs),
  firstTokenMs: null,
  durationMs: 25,
  promptTokens: 0,
  completionTokens: 0,
  costNanoUsd: null,
  channel: null,
  refId: null,
});

/** A month of plausible use, and some requests that were not answered. */
export function pastMonth(options: HistoryOptions): RequestRow[] {
  const random = repeatable(20_261_115);
  const today = Math.floor(options.nowMs / DAY_MS) * DAY_MS;
  const rows: RequestRow[] = [];
  for (let day = DAYS; day >= 0; day--) {
    const dayStartMs = today - day * DAY_MS;
    const weekday = new Date(dayStartMs).getUTCDay();
    const usual = weekday === 0 || weekday === 6 ? REQUESTS_ON_A_WEEKEND : REQUESTS_ON_A_WEEKDAY;
    const count = Math.round(usual * (0.6 + random() * 0.8));
    for (let i = 0; i < count; i++) rows.push(pastRequest(dayStartMs, random, options));
    for (const { id: userId, share } of COLLEAGUES)
      for (let i = 0; i < count * share; i++)
        rows.push(pastRequest(dayStartMs, random, { userId, key: null }));
  }
  // The last hours up to this minute, whatever the time of day.
  for (let i = 0; i < REQUESTS_LATELY; i++)
    rows.push({
      ...pastRequest(today, random, options),
      atMs: options.nowMs - Math.round(random() ** 2 * LATELY_MS),
    });
  for (const [i, row] of [...rows.entries()]) {
    const message = "More than 120 requests a minute, the tier's limit for a key";
    if (i % REFUSED_EVERY === 7)
      rows.push({
        ...unanswered(row, { status: 429, code: "rate_limit_exceeded", message }),
        backend: null,
        reason: null,
        attempts: 0,
      });
    const busy = { status: 502, code: "bad_gateway", message: "upstream 503: the model is loading" };
    if (i % FAILED_EVERY === 5) rows.push(unanswered(row, busy));
  }
  return rows.filter(({ atMs }) => atMs < options.nowMs).sort((a, b) => a.atMs - b.atMs);
}
