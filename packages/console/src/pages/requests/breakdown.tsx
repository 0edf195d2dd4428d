import { count, money, percent, seconds } from "../../lib/format.ts";
import { SmallSelect } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { type Filters, type RequestStats, useAskers } from "./data.ts";
import { codeInWords } from "./words.tsx";

const KINDS = { models: "model", backends: "backend", surfaces: "surface", codes: "code" } as const;
const ASKERS = { users: "user", groups: "group", projects: "project", keys: "key", refs: "ref" } as const;
const NAMES = {
  models: "Model",
  backends: "Backend",
  users: "User",
  groups: "Group",
  projects: "Project",
  keys: "Key",
  refs: "Reference",
  surfaces: "Surface",
  codes: "Error",
} as const;
type Breakdown = keyof typeof NAMES;
const BREAKDOWNS = Object.keys(NAMES) as Breakdown[];

const isOfAskers = (by: string | null): by is keyof typeof ASKERS => by !== null && Object.hasOwn(ASKERS, by);
/** The filter that a row of a breakdown sets. */
const filterOf = (by: Breakdown): string =>
  by === "groups" ? "whose" : isOfAskers(by) ? ASKERS[by] : KINDS[by];
const NAMELESS: Partial<Record<Breakdown, string>> = { users: "unknown", keys: "without a key" };

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
  if (isOfAskers(by))
    return stats.askers.map(({ id, name, requests, unanswered, cost_usd }) => ({
      id: id ?? "",
      label: name ?? id ?? NAMELESS[by] ?? "none",
      requests,
      unanswered,
      cost: cost_usd,
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
  if (isOfAskers(by)) return [...common, unanswered, cost];
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
  const askers = useAskers(filters, isOfAskers(chosen) ? ASKERS[chosen] : undefined);
  const columns = columnsFor(chosen);
  return (
    <Section
      title="Breakdown"
      actions={
        <SmallSelect
          label="Break down by"
          value={chosen}
          onChange={(value) => filters.set({ by: value === "models" ? null : value })}
          choices={BREAKDOWNS.filter((value) => value !== "users" || filters.whose !== "mine").map(
            (value) => ({
              value,
              label: `by ${NAMES[value].toLowerCase()}`,
            }),
          )}
        />
      }
    >
      <Loaded
        query={isOfAskers(chosen) ? askers : { ...askers, data: stats }}
        outline={<TableSkeleton columns={columns} />}
      >
        {(known) => {
          const lines = linesOf(known, chosen);
          if (lines.length === 0)
            return (
              <p className="muted">
                {chosen === "codes" ? "No errors in this period." : "Nothing in this period."}
              </p>
            );
          return (
            <Table
              label={`Requests by ${NAMES[chosen].toLowerCase()}`}
              columns={columns}
              rows={lines}
              rowKey={({ id, label }) => `${id} ${label}`}
              onOpen={({ id }) => filters.set({ [filterOf(chosen)]: id || null })}
            />
          );
        }}
      </Loaded>
    </Section>
  );
}
