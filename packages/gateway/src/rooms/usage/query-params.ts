import { fail } from "../../kernel/errors.ts";
import { isObject } from "../../kernel/json.ts";
import { DAY_MS } from "./calendar.ts";

export const GROUPINGS = ["model", "backend", "ref", "day"] as const;
export type GroupBy = (typeof GROUPINGS)[number];

const REF_LENGTH_MAX = 64;
const REFS_MAX = 1024;
const PAGE = { fallback: 100, min: 1, max: 500 };

export interface UsageQuery {
  /** Null: every row, tagged or not. */
  refIds: string[] | null;
  /** Inclusive; null: from the beginning. */
  sinceMs: number | null;
  /** Exclusive; null: without end. */
  untilMs: number | null;
  groupBy: GroupBy | null;
  limit: number;
  offset: number;
  includeRecords: boolean;
}

/** Days that both databases and four digits of a year can hold; a bound beyond them means the same as these. */
const EARLIEST_MS = Date.parse("0001-01-01T00:00:00Z");
const LATEST_MS = Date.parse("9999-12-31T00:00:00Z");

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const RFC3339 = /^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;

/** Midnight UTC of a date that exists; Date.parse would turn 30 February into March. */
function dateMs(text: string): number | null {
  const ms = Date.parse(`${text}T00:00:00Z`);
  return Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 10) !== text ? null : ms;
}

/** The first whole millisecond at or after an RFC 3339 instant; rows have no finer time. */
function instantMs(text: string): number | null {
  const match = RFC3339.exec(text);
  if (!match) return null;
  const [, date, time, fraction = "", zone] = match;
  if (dateMs(date!) === null) return null;
  const ms = Date.parse(`${date}T${time}${fraction.slice(0, 4)}${zone!.toUpperCase()}`);
  if (Number.isNaN(ms)) return null;
  return /[1-9]/.test(fraction.slice(4)) ? ms + 1 : ms;
}

function bound(value: unknown, field: "since" | "until"): number | null {
  if (value === undefined || value === null) return null;
  return clamp(instantOf(value, field), EARLIEST_MS, LATEST_MS);
}

function instantOf(value: unknown, field: "since" | "until"): number {
  const text = typeof value === "string" ? value.trim() : "";
  if (DATE.test(text)) {
    const ms = dateMs(text);
    // A date as the upper bound covers that whole day.
    if (ms !== null) return field === "until" ? ms + DAY_MS : ms;
  }
  return (
    instantMs(text) ??
    fail(
      field === "since" ? "bad_since" : "bad_until",
      `\`${field}\` must be a date (2026-01-31) or an RFC 3339 timestamp (2026-01-31T12:00:00Z)`,
    )
  );
}

function refIds(value: unknown): string[] | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value) || !value.every((entry) => typeof entry === "string")) {
    fail("invalid_params", "`ref_ids` must be an array of strings");
  }
  const refs = new Set(
    (value as string[])
      .map((entry) => entry.replaceAll("\u0000", "").trim().slice(0, REF_LENGTH_MAX))
      .filter((entry) => entry !== ""),
  );
  if (refs.size > REFS_MAX)
    fail("invalid_params", `\`ref_ids\` must have at most ${REFS_MAX} entries; ask in several queries`);
  return refs.size === 0 ? null : [...refs];
}

function groupBy(value: unknown): GroupBy | null {
  if (value === undefined || value === null) return null;
  return (
    GROUPINGS.find((grouping) => grouping === value) ??
    fail("bad_group_by", `\`group_by\` must be one of ${GROUPINGS.join(", ")}`)
  );
}

function integer(value: unknown, field: string, fallback: number): number {
  if (value === undefined || value === null) return fallback;
  return Number.isInteger(value)
    ? (value as number)
    : fail("invalid_params", `\`${field}\` must be a whole number`);
}

export const clamp = (value: number, min: number, max: number): number => Math.min(max, Math.max(min, value));

/** The body of `POST /api/admin/usage/query`, each problem with its own error. */
export function parseUsageQuery(body: unknown): UsageQuery {
  if (!isObject(body)) fail("invalid_params", "The body must be a JSON object; {} asks for everything");
  if (typeof (body.include_records ?? false) !== "boolean") {
    fail("invalid_params", "`include_records` must be true or false");
  }
  return {
    refIds: refIds(body.ref_ids),
    sinceMs: bound(body.since, "since"),
    untilMs: bound(body.until, "until"),
    groupBy: groupBy(body.group_by),
    limit: clamp(integer(body.limit, "limit", PAGE.fallback), PAGE.min, PAGE.max),
    offset: clamp(integer(body.offset, "offset", 0), 0, Number.MAX_SAFE_INTEGER),
    includeRecords: body.include_records === true,
  };
}
