import { cachedShare, compact, count, moneyFormat, percent, withoutCost } from "../../lib/format.ts";
import { Link } from "../../lib/router.ts";
import { Section } from "../../ui/page.tsx";
import { When } from "../../ui/states.tsx";
import { type Column, PagedTable, Table } from "../../ui/table.tsx";
import { type Grouping, groupInWords, type UsageGroup, type UsageRow } from "./data.ts";

const columnsFor = (cost: (usd: number | null) => string): Column<UsageRow>[] => [
  {
    id: "when",
    label: "When",
    sort: ({ created_at }) => created_at,
    cell: ({ created_at }) => <When time={created_at} />,
  },
  {
    id: "model",
    label: "Model",
    sort: ({ model }) => model,
    cell: ({ model }) => <span className="mono">{model}</span>,
  },
  {
    id: "backend",
    label: "Source",
    wide: true,
    sort: ({ backend }) => backend,
    cell: ({ backend }) => backend,
  },
  {
    id: "ref",
    label: "Reference",
    wide: true,
    sort: ({ ref_id }) => ref_id ?? "",
    cell: ({ ref_id }) => ref_id ?? "",
  },
  {
    id: "in",
    label: "Tokens in",
    numeric: true,
    wide: true,
    sort: ({ prompt_tokens }) => prompt_tokens,
    cell: ({ prompt_tokens }) => compact(prompt_tokens),
  },
  {
    id: "out",
    label: "Tokens out",
    numeric: true,
    wide: true,
    sort: ({ completion_tokens }) => completion_tokens,
    cell: ({ completion_tokens }) => compact(completion_tokens),
  },
  {
    id: "cost",
    label: "Cost",
    numeric: true,
    sort: ({ cost: usd }) => usd ?? -1,
    cell: ({ cost: usd, unpriced }) =>
      usd === null ? <span className="muted">{withoutCost(unpriced)}</span> : cost(usd),
  },
];
export const REQUEST_COLUMNS = columnsFor(String);

export function RequestTable({
  rows,
  onOpen,
  onMore,
}: {
  rows: readonly UsageRow[];
  onOpen(id: string): void;
  /** Absent: there are no more. */
  onMore?(): Promise<void>;
}) {
  const columns = columnsFor(moneyFormat(rows.map(({ cost }) => cost)));
  return (
    <Section title="Requests">
      <PagedTable
        label="Requests"
        columns={columns}
        rows={rows}
        rowKey={({ id }) => id}
        onOpen={({ id }) => onOpen(id)}
        onMore={onMore}
      />
    </Section>
  );
}

interface GroupSum {
  label: string;
  /** Of a user. */
  userId: string | null;
  requests: number;
  tokensIn: number;
  tokensOut: number;
  cost: number;
  cached: number | null;
  saved: number;
}

export function GroupTable({ groups, grouping }: { groups: readonly UsageGroup[]; grouping: Grouping }) {
  const list = groups.map(
    (group): GroupSum => ({
      label: groupInWords(group.name, grouping),
      userId: grouping === "user" ? group.id : null,
      requests: group.requests,
      tokensIn: group.prompt_tokens,
      tokensOut: group.completion_tokens,
      cost: group.cost_usd,
      cached: cachedShare(group),
      saved: group.cache_saved_usd,
    }),
  );
  const saved = moneyFormat(list.map((sum) => sum.saved));
  const cost = moneyFormat(list.map((sum) => sum.cost));
  const groupColumns: Column<GroupSum>[] = [
    {
      id: "label",
      label: grouping === "ref" ? "Reference" : grouping[0]!.toUpperCase() + grouping.slice(1),
      sort: ({ label }) => label,
      cell: ({ label, userId }) =>
        userId ? <Link href={`/users/${userId}`}>{label}</Link> : <span className="mono">{label}</span>,
    },
    {
      id: "requests",
      label: "Requests",
      numeric: true,
      sort: ({ requests }) => requests,
      cell: ({ requests }) => count(requests),
    },
    {
      id: "in",
      label: "Tokens in",
      numeric: true,
      sort: ({ tokensIn }) => tokensIn,
      cell: ({ tokensIn }) => compact(tokensIn),
    },
    {
      id: "cached",
      label: "Cached",
      numeric: true,
      sort: ({ cached }) => cached ?? -1,
      cell: ({ cached }) => (cached === null ? "" : percent(cached)),
    },
    {
      id: "out",
      label: "Tokens out",
      numeric: true,
      sort: ({ tokensOut }) => tokensOut,
      cell: ({ tokensOut }) => compact(tokensOut),
    },
    { id: "cost", label: "Cost", numeric: true, sort: (sum) => sum.cost, cell: (sum) => cost(sum.cost) },
    {
      id: "saved",
      label: "Saved by caches",
      numeric: true,
      wide: true,
      sort: (sum) => sum.saved,
      cell: (sum) => saved(sum.saved),
    },
  ];
  return (
    <Table
      label={`Sums by ${grouping}`}
      columns={groupColumns}
      rows={list}
      rowKey={({ label, userId }) => userId ?? label}
    />
  );
}
