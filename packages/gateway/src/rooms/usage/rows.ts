import type { RequestLine } from "../../kernel/request-row.ts";

export const NANO_PER_USD = 1e9;
/** The project of the rollup row that counts everything a user did. A key's project is never empty. */
export const WHOLE_USER = "";

/** One request as the database keeps it. */
export interface RequestRow extends RequestLine {
  /** Set when points paid; null when the request counts against the tier's quota. */
  points: number | null;
  accountType: "user" | "group" | null;
}

export interface MonthKey {
  userId: string;
  /** `YYYY-MM`, UTC. */
  month: string;
  /** A project, or `WHOLE_USER`. */
  project: string;
}

export interface MonthTotals {
  requests: number;
  tokens: number;
  costNanoUsd: number;
  /** What points did not pay. */
  quotaTokens: number;
  quotaCostNanoUsd: number;
  /** The part of it that keys used; a signed-in person's requests are in the whole user's sums only. */
  keyQuotaTokens: number;
  keyQuotaCostNanoUsd: number;
}

export interface KeySpend {
  keyId: string;
  /** The newest UTC month in which it was used, `YYYY-MM`. */
  month: string;
  monthNanoUsd: number;
  totalNanoUsd: number;
}
