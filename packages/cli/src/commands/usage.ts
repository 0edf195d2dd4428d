import type { UsageQuery, UsageSums } from "@model-gateway/client";
import { type Command, text, wholeNumber } from "../command.ts";

const GROUPINGS = ["model", "backend", "ref", "day"] as const;
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
    "model-gateway usage --limit 20",
    "model-gateway usage --by model --since 2026-11-01",
    "model-gateway usage --by day --json",
  ],
  options: {
    limit: { type: "string", help: "rows to show, 50 unless given" },
    project: { type: "string", help: "only rows of this project's keys" },
    by: { type: "string", help: "sums by model, backend, ref or day; for administrators" },
    since: { type: "string", help: "first day, YYYY-MM-DD" },
    until: { type: "string", help: "last day, YYYY-MM-DD" },
  },
  async run({ options, output, connection }) {
    const by = text(options, "by");
    if (by === null) {
      const client = await connection.signedIn();
      const answer = (await client.callUnknown("usage.list", {
        limit: wholeNumber(options, "limit") ?? 50,
        ...(text(options, "project") && { project: text(options, "project") }),
      })) as { records: UsageRow[] };
      return output.table(
        answer.records as unknown as Record<string, unknown>[],
        rowColumns,
        "No requests yet",
      );
    }
    const query: UsageQuery = {
      group_by: GROUPINGS.find((name) => name === by) ?? (by as "model"),
      ...(text(options, "since") && { since: text(options, "since")! }),
      ...(text(options, "until") && { until: text(options, "until")! }),
    };
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
