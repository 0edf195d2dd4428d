import type { UsageRow } from "@model-gateway/gateway/rooms/usage/index.ts";
import { DEMO_PRICES } from "./prices.ts";

const DAYS = 30;
const DAY_MS = 24 * 3_600_000;
const REQUESTS_ON_A_WEEKDAY = 70;
const REQUESTS_ON_A_WEEKEND = 15;
const REQUESTS_LATELY = 40;
const LATELY_MS = 6 * 3_600_000;
const PROJECTS = ["default", "thesis", "website"] as const;
const REFERENCES = [null, null, "nightly-eval", "paper-draft"] as const;

/** Colleagues, so that a group has members; nobody can sign in as them. */
export const COLLEAGUES = [
  { email: "ada@example.com", name: "Ada" },
  { email: "grace@example.com", name: "Grace" },
] as const;

export interface HistoryOptions {
  userId: string;
  key: { id: string; prefix: string };
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

/** One request of the past month, somewhere in working hours. */
function pastRequest(dayStartMs: number, random: () => number, { userId, key }: HistoryOptions): UsageRow {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() ** 1.6 * list.length)]!;
  const price = pick(DEMO_PRICES);
  const promptTokens = Math.round(200 + random() ** 3 * 12_000);
  const completionTokens = Math.round(40 + random() ** 2 * 1_500);
  const viaConsole = random() < 0.15;
  return {
    id: Bun.randomUUIDv7(undefined, dayStartMs),
    userId,
    keyId: viaConsole ? null : key.id,
    project: viaConsole ? null : pick(PROJECTS),
    apiKeyId: viaConsole ? `jwt-${userId}` : key.prefix,
    model: price.match,
    backend: viaConsole ? "rpc" : "gateway",
    promptTokens,
    completionTokens,
    // Dollars per million tokens are thousands of nanodollars per token.
    costNanoUsd: Math.round(promptTokens * price.input * 1_000 + completionTokens * price.output * 1_000),
    createdAtMs: dayStartMs + Math.round((8 + random() * 11) * 3_600_000),
    refId: viaConsole ? null : pick(REFERENCES),
    points: null,
    accountType: null,
    estimated: false,
  };
}

/** A month of plausible use. */
export function pastMonth(options: HistoryOptions): UsageRow[] {
  const random = repeatable(20_261_115);
  const today = Math.floor(options.nowMs / DAY_MS) * DAY_MS;
  const rows: UsageRow[] = [];
  for (let day = DAYS; day >= 0; day--) {
    const dayStartMs = today - day * DAY_MS;
    const weekday = new Date(dayStartMs).getUTCDay();
    const usual = weekday === 0 || weekday === 6 ? REQUESTS_ON_A_WEEKEND : REQUESTS_ON_A_WEEKDAY;
    const count = Math.round(usual * (0.6 + random() * 0.8));
    for (let i = 0; i < count; i++) rows.push(pastRequest(dayStartMs, random, options));
  }
  // The last hours up to this minute, whatever the time of day.
  for (let i = 0; i < REQUESTS_LATELY; i++)
    rows.push({
      ...pastRequest(today, random, options),
      createdAtMs: options.nowMs - Math.round(random() ** 2 * LATELY_MS),
    });
  return rows
    .filter(({ createdAtMs }) => createdAtMs < options.nowMs)
    .sort((a, b) => a.createdAtMs - b.createdAtMs);
}
