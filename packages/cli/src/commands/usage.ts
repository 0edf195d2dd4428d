import type { Result, UsageQuery, UsageSums } from "@model-gateway/client";
import { type Command, refuseIdle, text, UsageError, wholeNumber } from "../command.ts";

const GROUPINGS = ["model", "backend", "ref", "day"] as const;
/** Groupings of which the contract's query knows nothing. */
const BY_ASKER = ["user", "group", "project", "key"] as const;
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
type AskerRow = Result<"usage.series">["groups"][number];
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
    "model-gateway usage --by day --json",
  ],
  options: {
    limit: { type: "string", help: "rows to show, 50 unless given" },
    project: { type: "string", help: "only rows of this project's keys" },
    by: {
      type: "string",
      help: `sums by ${[...BY_ASKER, ...GROUPINGS].join(", ")}; for administrators`,
    },
    since: { type: "string", help: "first day, YYYY-MM-DD" },
    until: { type: "string", help: "last day, YYYY-MM-DD" },
  },
  async run({ options, output, connection }) {
    const by = text(options, "by");
    const project = text(options, "project");
    const [since, until] = [text(options, "since"), text(options, "until")];
    const range = { ...(since && { since }), ...(until && { until }) };
    if (by === null) {
      const client = await connection.signedIn();
      const { records } = await client.call("usage.records", {
        ...EVER,
        ...range,
        limit: wholeNumber(options, "limit") ?? 50,
        ...(project && { project }),
      });
      return output.table(records, rowColumns, "No requests yet");
    }
    refuseIdle(options, ["limit"], "with --by");
    const asker = BY_ASKER.find((name) => name === by);
    if (asker) {
      const client = await connection.signedIn();
      const which = { ...EVER, ...range, everyone: true, by: asker, ...(project && { project }) };
      const answer = await client.call("usage.series", which);
      if (output.json) return output.result(answer, () => "");
      return output.table(
        answer.groups,
        {
          [by]: ({ name }: AskerRow) => name ?? "(none)",
          requests: ({ requests }: AskerRow) => String(requests),
          tokens: (row: AskerRow) => String(row.prompt_tokens + row.completion_tokens),
          cost: ({ cost_usd }: AskerRow) => money(cost_usd),
        },
        "Nothing in this range",
      );
    }
    const group_by = GROUPINGS.find((name) => name === by);
    if (!group_by) throw new UsageError(`--by must be one of ${[...BY_ASKER, ...GROUPINGS].join(", ")}`);
    refuseIdle(options, ["project"], `with --by ${by}`);
    const query: UsageQuery = { group_by, ...range };
    const answer =
      connection.adminToken === null
        ? await (await connection.signedIn()).call("usage.query", query)
        : await connection.asOperator().admin.queryUsage(query);
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
