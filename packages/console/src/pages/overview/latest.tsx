import { api } from "../../lib/api.ts";
import { compact, moneyFormat, withoutCost } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import type { UsageRecord } from "../../lib/records.ts";
import { navigate } from "../../lib/router.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const LATEST = 8;
const EVERY_MS = 5_000;

const columnsFor = (cost: (usd: number | null) => string): Column<UsageRecord>[] => [
  { id: "when", label: "When", cell: ({ created_at }) => <When time={created_at} /> },
  { id: "model", label: "Model", cell: ({ model }) => <span className="mono">{model}</span> },
  { id: "backend", label: "Source", wide: true, cell: ({ backend }) => backend },
  {
    id: "in",
    label: "Tokens in",
    numeric: true,
    wide: true,
    cell: ({ prompt_tokens }) => compact(prompt_tokens),
  },
  {
    id: "out",
    label: "Tokens out",
    numeric: true,
    wide: true,
    cell: ({ completion_tokens }) => compact(completion_tokens),
  },
  {
    id: "cost",
    label: "Cost",
    numeric: true,
    cell: ({ cost: usd, unpriced }) =>
      usd === null ? <span className="muted">{withoutCost(unpriced)}</span> : cost(usd),
  },
];

export function LatestRequests() {
  const query = useQuery("usage latest", () => api("usage.list", { limit: LATEST }), { everyMs: EVERY_MS });
  return (
    <Loaded query={query} outline={<TableSkeleton columns={columnsFor(String)} rows={LATEST} />}>
      {({ records }) =>
        records.length === 0 ? (
          <Empty
            icon="usage"
            title="No requests yet"
            action={
              <LinkButton href="/playground" look="primary">
                Open the playground
              </LinkButton>
            }
          >
            Every request that you or your keys make appears here within a second, with its tokens and its
            cost.
          </Empty>
        ) : (
          <Table
            label="Your latest requests"
            columns={columnsFor(moneyFormat(records.map(({ cost }) => cost)))}
            rows={records}
            rowKey={({ id }) => id}
            onOpen={({ id }) => navigate(`/requests?open=${id}`)}
          />
        )
      }
    </Loaded>
  );
}
