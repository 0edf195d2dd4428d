import { compact, moneyFormat, seconds } from "../../lib/format.ts";
import { When } from "../../ui/states.tsx";
import { type Column, PagedTable } from "../../ui/table.tsx";
import type { RequestRecord } from "./data.ts";
import { keyInWords, OutcomeStatus } from "./words.tsx";

const columnsFor = (cost: (usd: number | null) => string): Column<RequestRecord>[] => [
  { id: "when", label: "When", cell: ({ at }) => <When time={at} /> },
  { id: "outcome", label: "Outcome", cell: (record) => <OutcomeStatus record={record} /> },
  {
    id: "model",
    label: "Model",
    cell: ({ model, model_asked }) =>
      model || model_asked ? (
        <span className="mono clamp-name tight">{model ?? model_asked}</span>
      ) : (
        <span className="muted">not named</span>
      ),
  },
  { id: "backend", label: "Backend", wide: true, cell: ({ backend }) => backend },
  {
    id: "key",
    label: "Key",
    wide: true,
    cell: (record) => <span className="clamp-name tight">{keyInWords(record)}</span>,
  },
  {
    id: "first",
    label: "First token",
    numeric: true,
    wide: true,
    cell: ({ first_token_ms }) => (first_token_ms === null ? "" : seconds(first_token_ms)),
  },
  {
    id: "duration",
    label: "Duration",
    numeric: true,
    wide: true,
    cell: ({ duration_ms }) => seconds(duration_ms),
  },
  {
    id: "tokens",
    label: "Tokens",
    numeric: true,
    wide: true,
    cell: ({ prompt_tokens, completion_tokens }) =>
      prompt_tokens + completion_tokens === 0
        ? ""
        : `${compact(prompt_tokens)} + ${compact(completion_tokens)}`,
  },
  {
    id: "cost",
    label: "Cost",
    numeric: true,
    wide: true,
    cell: ({ cost_usd, unpriced }) =>
      cost_usd === null ? unpriced && <span className="muted">unpriced</span> : cost(cost_usd),
  },
];
export const REQUEST_COLUMNS = columnsFor(String);

export function RequestTable({
  records,
  onOpen,
  onMore,
}: {
  records: readonly RequestRecord[];
  onOpen(id: string): void;
  /** Absent: there are no more. */
  onMore?(): Promise<void>;
}) {
  const columns = columnsFor(moneyFormat(records.map(({ cost_usd }) => cost_usd)));
  return (
    <PagedTable
      label="Requests"
      columns={columns}
      rows={records}
      rowKey={({ id }) => id}
      onOpen={({ id }) => onOpen(id)}
      onMore={onMore}
    />
  );
}
