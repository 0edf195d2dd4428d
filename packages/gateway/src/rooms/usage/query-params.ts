import { z } from "zod";
import { wholeNumber } from "../../kernel/method.ts";
import { REF_LENGTH_MAX } from "../../kernel/request-row.ts";
import { DAY_MS, type Time } from "./rows.ts";

export const GROUPINGS = ["model", "backend", "ref", "day"] as const;
export type GroupBy = (typeof GROUPINGS)[number];

const REFS_MAX = 1024;
const PAGE = { fallback: 100, min: 1, max: 500 };

export interface UsageQuery extends Time {
  refIds: string[] | null;
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

/** When a bound lies; a date as the upper bound covers that whole day. */
function boundMs(text: string, field: "since" | "until"): number | null {
  const day = DATE.test(text) ? dateMs(text) : null;
  if (day !== null) return field === "until" ? day + DAY_MS : day;
  return instantMs(text);
}

export function Bound(field: "since" | "until") {
  const problem = `\`${field}\` must be a date (2026-01-31) or an RFC 3339 timestamp (2026-01-31T12:00:00Z)`;
  return z.string(problem).transform((text, context) => {
    const ms = boundMs(text.trim(), field);
    if (ms !== null) return clamp(ms, EARLIEST_MS, LATEST_MS);
    context.addIssue(problem);
    return z.NEVER;
  });
}

const REFS_PROBLEM = "`ref_ids` must be an array of strings";
const Refs = z
  .array(z.string(REFS_PROBLEM), REFS_PROBLEM)
  .transform((entries) => {
    const refs = entries.map((entry) => entry.replaceAll("\u0000", "").trim().slice(0, REF_LENGTH_MAX));
    return [...new Set(refs)].filter((entry) => entry !== "");
  })
  .refine(
    (refs) => refs.length <= REFS_MAX,
    `\`ref_ids\` must have at most ${REFS_MAX} entries; ask in several queries`,
  );

export const clamp = (value: number, min: number, max: number): number => Math.min(max, Math.max(min, value));

export const QueryBody = z.object(
  {
    ref_ids: Refs.optional().describe("Absent or blank: all rows"),
    since: Bound("since").optional().describe("Inclusive: YYYY-MM-DD or an RFC 3339 timestamp"),
    until: Bound("until").optional().describe("Exclusive instant, or a YYYY-MM-DD that is covered whole"),
    group_by: z.enum(GROUPINGS, `\`group_by\` must be one of ${GROUPINGS.join(", ")}`).optional(),
    limit: wholeNumber("`limit` must be a whole number")
      .optional()
      .describe("Rows a page, 1-500; default 100"),
    offset: wholeNumber("`offset` must be a whole number").optional(),
    include_records: z.boolean("`include_records` must be true or false").optional(),
  },
  "The body must be a JSON object; {} asks for everything",
);

export const QUERY_ERRORS = {
  "": "invalid_params",
  ref_ids: "invalid_params",
  since: "bad_since",
  until: "bad_until",
  group_by: "bad_group_by",
  limit: "invalid_params",
  offset: "invalid_params",
  include_records: "invalid_params",
} as const;

export function usageQueryOf(body: z.output<typeof QueryBody>): UsageQuery {
  const { ref_ids: refs = [], limit = PAGE.fallback, offset = 0 } = body;
  return {
    refIds: refs.length === 0 ? null : refs,
    fromMs: body.since ?? EARLIEST_MS,
    belowMs: body.until ?? LATEST_MS,
    groupBy: body.group_by ?? null,
    limit: clamp(limit, PAGE.min, PAGE.max),
    offset: clamp(offset, 0, Number.MAX_SAFE_INTEGER),
    includeRecords: body.include_records === true,
  };
}
