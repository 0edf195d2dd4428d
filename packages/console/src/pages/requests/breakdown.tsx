import { count, money, percent, seconds } from "../../lib/format.ts";
import { Segments } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import type { Filters, RequestStats } from "./data.ts";
import { codeInWords, keyInWords } from "./words.tsx";

const BREAKDOWNS = ["models", "backends", "keys", "surfaces", "codes"] as const;
type Breakdown = (typeof BREAKDOWNS)[number];
const NAMES: Readonly<Record<Breakdown, string>> = {
  models: "Model",
  backends: "Backend",
  keys: "Key",
  surfaces: "Surface",
  codes: "Error",
};
/** The filter that a row of a breakdown sets. */
const FILTER_OF: Readonly<Record<Breakdown, string>> = {
  models: "model",
  backends: "backend",
  keys: "key",
  surfaces: "surface",
  codes: "code",
};

interface Line {
  id: string;
  label: string;
  requests: number;
  unanswered: number;
  cost: number;
  firstTokenMs: number | null;
  p50Ms: number | null;
  p95Ms: number | null;
}

function linesOf(stats: RequestStats, by: Breakdown): Line[] {
  if (by === "keys")
    return stats.keys.map((key) => ({
      id: key.key_id ?? "",
      label: keyInWords(key),
      requests: key.requests,
      unanswered: key.unanswered,
      cost: key.cost_usd,
      firstTokenMs: null,
      p50Ms: null,
      p95Ms: null,
    }));
  return stats[by].map(({ name, requests, ok, cost_usd, first_token, duration }) => ({
    id: name ?? "",
    label: name === null ? "none" : by === "codes" ? codeInWords(name) : name,
    requests,
    unanswered: requests - ok,
    cost: cost_usd,
    firstTokenMs: first_token.p50_ms,
    p50Ms: duration.p50_ms,
    p95Ms: duration.p95_ms,
  }));
}

const time = (ms: number | null) => (ms === null ? "" : seconds(ms));

const columnsFor = (by: Breakdown): Column<Line>[] => {
  const common: Column<Line>[] = [
    {
      id: "label",
      label: NAMES[by],
      sort: ({ label }) => label,
      cell: ({ label }) => <span className={by === "codes" ? undefined : "mono clamp-name"}>{label}</span>,
    },
    {
      id: "requests",
      label: "Requests",
      numeric: true,
      sort: ({ requests }) => requests,
      cell: ({ requests }) => count(requests),
    },
  ];
  if (by === "codes") return common;
  const unanswered: Column<Line> = {
    id: "unanswered",
    label: "Error rate",
    numeric: true,
    sort: ({ unanswered: n, requests }) => n / requests,
    cell: ({ unanswered: n, requests }) => (n === 0 ? "" : percent(n / requests)),
  };
  const cost: Column<Line> = {
    id: "cost",
    label: "Cost",
    numeric: true,
    wide: true,
    sort: (line) => line.cost,
    cell: (line) => (line.cost === 0 ? "" : money(line.cost)),
  };
  if (by === "keys") return [...common, unanswered, cost];
  return [
    ...common,
    unanswered,
    {
      id: "first",
      label: "First token",
      numeric: true,
      wide: true,
      sort: ({ firstTokenMs }) => firstTokenMs ?? -1,
      cell: ({ firstTokenMs }) => time(firstTokenMs),
    },
    {
      id: "p50",
      label: "p50",
      numeric: true,
      wide: true,
      sort: ({ p50Ms }) => p50Ms ?? -1,
      cell: ({ p50Ms }) => time(p50Ms),
    },
    {
      id: "p95",
      label: "p95",
      numeric: true,
      sort: ({ p95Ms }) => p95Ms ?? -1,
      cell: ({ p95Ms }) => time(p95Ms),
    },
    cost,
  ];
};

/** Where the requests went and how they fared; a row narrows the page to it. */
export function BreakdownSection({
  stats,
  by,
  filters,
}: {
  stats: RequestStats;
  by: string | null;
  filters: Filters;
}) {
  const chosen = BREAKDOWNS.find((name) => name === by) ?? "models";
  const lines = linesOf(stats, chosen);
  return (
    <Section
      title="Breakdown"
      actions={
        <Segments
          label="Break down by"
          value={chosen}
          onChange={(value) => filters.set({ by: value === "models" ? null : value })}
          choices={BREAKDOWNS.map((value) => ({ value, label: NAMES[value] }))}
        />
      }
    >
      {lines.length === 0 ? (
        <p className="muted">
          {chosen === "codes" ? "No errors in this period." : "Nothing in this period."}
        </p>
      ) : (
        <Table
          label={`Requests by ${NAMES[chosen].toLowerCase()}`}
          columns={columnsFor(chosen)}
          rows={lines}
          rowKey={({ id, label }) => `${id} ${label}`}
          onOpen={({ id }) => filters.set({ [FILTER_OF[chosen]]: id || null })}
        />
      )}
    </Section>
  );
}
