import { session } from "../../lib/client.ts";
import { cachedShare, compact, count, percent, sumsFormat } from "../../lib/format.ts";
import { Link } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { type Column, Table } from "../../ui/table.tsx";
import { type Grouping, groupInWords, type UsageGroup } from "./data.ts";

interface GroupSum {
  label: string;
  /** Of a user. */
  userId: string | null;
  requests: number;
  tokensIn: number;
  tokensOut: number;
  cost: number;
  unpriced: number | null;
  cached: number | null;
  saved: number;
}

export function GroupTable({ groups, grouping }: { groups: readonly UsageGroup[]; grouping: Grouping }) {
  // A person's page is for administrators.
  const isAdmin = useStore(session)?.user.is_admin;
  const list = groups.map(
    (group): GroupSum => ({
      label: groupInWords(group.name, grouping),
      userId: isAdmin && grouping === "user" ? group.id : null,
      requests: group.requests,
      tokensIn: group.prompt_tokens,
      tokensOut: group.completion_tokens,
      cost: group.cost_usd,
      unpriced: group.unpriced,
      cached: cachedShare(group),
      saved: group.cache_saved_usd,
    }),
  );
  const saved = sumsFormat(list.map((sum) => sum.saved));
  const cost = sumsFormat(list.map((sum) => sum.cost));
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
      wide: true,
      sort: ({ tokensIn }) => tokensIn,
      cell: ({ tokensIn }) => compact(tokensIn),
    },
    {
      id: "cached",
      label: "Cached",
      numeric: true,
      wide: true,
      sort: ({ cached }) => cached ?? -1,
      cell: ({ cached }) => (cached === null ? "" : percent(cached)),
    },
    {
      id: "out",
      label: "Tokens out",
      numeric: true,
      wide: true,
      sort: ({ tokensOut }) => tokensOut,
      cell: ({ tokensOut }) => compact(tokensOut),
    },
    {
      id: "cost",
      label: "Cost",
      numeric: true,
      sort: (sum) => sum.cost,
      cell: (sum) =>
        sum.unpriced === sum.requests ? <span className="muted">unpriced</span> : cost(sum.cost),
    },
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
