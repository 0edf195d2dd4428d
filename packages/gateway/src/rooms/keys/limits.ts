import { z } from "zod";
import type { KeyLimits } from "../../kernel/payer.ts";
import { MODEL_ID_LENGTH_MAX } from "../../kernel/request-row.ts";
import { type ModelRules, modelAllowed, normalModelId } from "../groups/index.ts";

const NANO_PER_USD = 1e9;
/** Also the most that one request can cost, so that sums stay exact. */
const BUDGET_USD_MAX = 1_000_000;
const REQUESTS_MAX = 100_000;
const TOKENS_MAX = 1_000_000_000;
const MODELS_MAX = 100;
/** Later years have five digits, which some parsers reject. */
const EXPIRY_MAX = "9999-01-01T00:00:00Z";

const Budget = z.number().min(0).max(BUDGET_USD_MAX);

/** What an owner may limit a key to. Null, or left out: no limit. */
export const LimitParams = z.object({
  expires_at: z.iso
    .datetime({ offset: true, error: "must be an RFC 3339 timestamp, like 2030-01-31T00:00:00Z" })
    .refine(
      (time) => Date.parse(time) < Date.parse(EXPIRY_MAX),
      "must be before the year 9999; null is never",
    )
    .nullish()
    .describe("From then on the key is refused"),
  monthly_budget_usd: Budget.nullish().describe("What the key may spend in a UTC month"),
  total_budget_usd: Budget.nullish().describe("What the key may spend in all its life"),
  allowed_models: z
    .array(z.string().trim().min(1).max(MODEL_ID_LENGTH_MAX))
    .min(1, "must name at least one model; null allows all")
    .max(MODELS_MAX)
    .nullish()
    .describe("The models that the key may call. Aliases and model routes are followed to what they lead to"),
  requests_per_minute: z.int().min(1).max(REQUESTS_MAX).nullish(),
  tokens_per_minute: z
    .int()
    .min(1)
    .max(TOKENS_MAX)
    .nullish()
    .describe("A request counts as many as it may take until it ends, then as many as it took"),
});
export type GivenLimits = z.output<typeof LimitParams>;

export interface LimitRow {
  expires_at: string | null;
  monthly_budget_nano_usd: number | null;
  total_budget_nano_usd: number | null;
  allowed_models: string | null;
  requests_per_minute: number | null;
  tokens_per_minute: number | null;
}

const nanoOf = (usd: number): number => Math.round(usd * NANO_PER_USD);
const usdOf = (nanoUsd: number | null): number | null => (nanoUsd === null ? null : nanoUsd / NANO_PER_USD);
const onceEach = (models: readonly string[]): string[] => [
  ...new Map(models.map((model) => [normalModelId(model), model])).values(),
];

/** `before` with the given changes: null removes a limit, absent ones stay. */
export function changedLimits(before: LimitRow | null, given: GivenLimits): LimitRow {
  const next = <T, U>(
    value: T | null | undefined,
    kept: U | null = null,
    convert: (value: T) => U,
  ): U | null => (value === undefined ? kept : value === null ? null : convert(value));
  const same = (value: number) => value;
  return {
    expires_at: next(given.expires_at, before?.expires_at, (time) => new Date(time).toISOString()),
    monthly_budget_nano_usd: next(given.monthly_budget_usd, before?.monthly_budget_nano_usd, nanoOf),
    total_budget_nano_usd: next(given.total_budget_usd, before?.total_budget_nano_usd, nanoOf),
    allowed_models: next(given.allowed_models, before?.allowed_models, (models) =>
      JSON.stringify(onceEach(models)),
    ),
    requests_per_minute: next(given.requests_per_minute, before?.requests_per_minute, same),
    tokens_per_minute: next(given.tokens_per_minute, before?.tokens_per_minute, same),
  };
}

export const limitsView = (row: LimitRow) => ({
  ...row,
  monthly_budget_usd: usdOf(row.monthly_budget_nano_usd),
  total_budget_usd: usdOf(row.total_budget_nano_usd),
  allowed_models: modelsOf(row),
});

const modelsOf = ({ allowed_models }: LimitRow): string[] | null =>
  allowed_models === null ? null : (JSON.parse(allowed_models) as string[]);

/** The key's limits that metering enforces; null if there are none. */
export function keyLimitsOf(row: LimitRow & { member_budget_nano_usd: number | null }): KeyLimits | null {
  const limits = {
    monthlyNanoUsd: row.monthly_budget_nano_usd,
    totalNanoUsd: row.total_budget_nano_usd,
    memberNanoUsd: row.member_budget_nano_usd,
    requestsPerMinute: row.requests_per_minute,
    tokensPerMinute: row.tokens_per_minute,
  };
  return Object.values(limits).some((value) => value !== null) ? limits : null;
}

/** Which models a key may use: its group's rules, further restricted by its own. */
export interface ModelTerms {
  group: ModelRules | null;
  models: { names: readonly string[]; ids: ReadonlySet<string> } | null;
}

export function allowedModelsOf(row: LimitRow): ModelTerms["models"] {
  const names = modelsOf(row);
  return names && { names, ids: new Set(names.map(normalModelId)) };
}

/** Why a key may not use the model; null if it may. Takes the id after alias resolution. */
export function modelRefusal(terms: ModelTerms | null, model: string): string | null {
  if (terms === null) return null;
  if (!modelAllowed(terms.group, model))
    return `This key's group does not allow the model ${shown(model)}; ask a group admin`;
  if (terms.models && !terms.models.ids.has(normalModelId(model)))
    return `This key may not use the model ${shown(model)}, only ${shortList(terms.models.names)}; its owner can allow more (keys.update)`;
  return null;
}

const shown = (model: string): string => model.slice(0, MODEL_ID_LENGTH_MAX);
const LISTED_MAX = 5;
const shortList = (names: readonly string[]): string =>
  names.length <= LISTED_MAX
    ? names.join(", ")
    : `${names.slice(0, LISTED_MAX).join(", ")} and ${names.length - LISTED_MAX} more`;
