import type { Result, UsageQuery, UsageSums } from "@model-gateway/client";
import { type Command, refuseIdle, text, UsageError, wholeNumber } from "../command.ts";
import { NARROWING, narrowed } from "./narrowing.ts";

const GROUPINGS = ["model", "backend", "ref", "day"] as const;
/** Groupings of which the contract's query knows nothing; what it calls a backend is the way that a request came. */
const BY_SERIES = ["user", "group", "project", "key", "backend"] as const;
/** Those that it knows, too, where it cannot narrow them down. */
const BY_SERIES_NARROWED = [...BY_SERIES, "model", "ref"] as const;
const BY = [...new Set([...BY_SERIES, ...GROUPINGS])].join(", ");
/** All that there is. */
const EVER = { since: "2000-01-01", until: "9999-12-31" };
const money = (usd: number) => `$${usd.toFixed(usd >= 0.01 || usd === 0 ? 2 : 6)}`;

interface UsageRow {
  created_at: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  cost: number | null;
  unpriced: boolean;
  ref_id: string | null;
}
type SeriesRow = Result<"usage.series">["groups"][number];
type GroupRow = UsageSums & { key: string | null };

const rowColumns = {
  when: (row: UsageRow) => row.created_at.slice(0, 19).replace("T", " "),
  model: (row: UsageRow) => row.model,
  through: (row: UsageRow) => row.backend,
  in: (row: UsageRow) => String(row.prompt_tokens),
  out: (row: UsageRow) => String(row.completion_tokens),
  cost: ({ cost, unpriced }: UsageRow) =>
    cost === null ? (unpriced ? "unpriced" : "not billed") : money(cost),
  reference: (row: UsageRow) => row.ref_id ?? "",
};

export const usage: Command = {
  name: "usage",
  summary: "Your latest requests; with --by the sums of everyone's",
  examples: [
    "model-gateway usage --limit 20 --since 2026-11-01",
    "model-gateway usage --by user --since 2026-11-01",
    "model-gateway usage --by model --user ada@example.com",
    "model-gateway usage --by day --json",
  ],
  options: {
    limit: { type: "string", help: "rows to show, 50 unless given" },
    key: { type: "string", help: "only what was done with the key of this prefix" },
    ...NARROWING,
    by: {
      type: "string",
      help: `sums by ${BY}; for administrators`,
    },
    since: { type: "string", help: "first day, YYYY-MM-DD" },
    until: { type: "string", help: "last day, YYYY-MM-DD" },
  },
  async run({ options, output, connection }) {
    const by = text(options, "by");
    const key = text(options, "key");
    const [since, until] = [text(options, "since"), text(options, "until")];
    const range = { ...(since && { since }), ...(until && { until }) };
    if (by === null) {
      const client = await connection.signedIn();
      const { records } = await client.call("usage.records", {
        ...EVER,
        ...range,
        ...(await narrowed(client, options)),
        ...(key && { api_key_id: key }),
        limit: wholeNumber(options, "limit") ?? 50,
      });
      return output.table(records, rowColumns, "No requests yet");
    }
    refuseIdle(options, ["limit"], "with --by");
    const isOperators = connection.adminToken !== null;
    const narrowings = ["key", ...Object.keys(NARROWING)];
    const isNarrowed = narrowings.some((name) => options[name] !== undefined);
    const known = isNarrowed ? BY_SERIES_NARROWED : BY_SERIES;
    const series = known.find((name) => name === by && !(isOperators && name === "backend"));
    if (series) {
      const client = await connection.signedIn();
      const which = { ...(await narrowed(client, options)), ...(key && { api_key_id: key }) };
      const answer = await client.call("usage.series", {
        ...EVER,
        ...range,
        ...which,
        everyone: true,
        by: series,
      });
      if (output.json) return output.result(answer, () => "");
      return output.table(
        answer.groups,
        {
          [by]: ({ name }: SeriesRow) => name ?? "(none)",
          requests: ({ requests }: SeriesRow) => String(requests),
          tokens: (row: SeriesRow) => String(row.prompt_tokens + row.completion_tokens),
          cached: (row: SeriesRow) =>
            `${Math.floor((100 * row.cached_tokens) / Math.max(1, row.prompt_tokens))} %`,
          cost: ({ cost_usd }: SeriesRow) => money(cost_usd),
          saved: ({ cache_saved_usd }: SeriesRow) => money(cache_saved_usd),
        },
        "Nothing in this range",
      );
    }
    const group_by = GROUPINGS.find((name) => name === by);
    if (!group_by) throw new UsageError(`--by must be one of ${BY}`);
    refuseIdle(options, narrowings, `with --by ${by}`);
    const query: UsageQuery = { group_by, ...range };
    const answer = isOperators
      ? await connection.asOperator().admin.queryUsage(query)
      : await (await connection.signedIn()).call("usage.query", query);
    if (output.json) return output.result(answer, () => "");
    output.table(
      (answer.groups ?? []) as unknown as Record<string, unknown>[],
      {
        [by]: (row: GroupRow) => row.key ?? "(none)",
        requests: (row: GroupRow) => String(row.requests ?? ""),
        tokens: (row: GroupRow) => String(row.total_tokens),
        cost: (row: GroupRow) => money(row.cost_usd),
      },
      "Nothing in this range",
    );
  },
};
