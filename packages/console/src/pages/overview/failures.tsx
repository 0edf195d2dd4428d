import { useState } from "react";
import { type RequestFailure, useActivity } from "../../lib/activity.ts";
import { shortRequestId } from "../../lib/format.ts";
import { Button, Copyable } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { codeInWords } from "../requests/words.tsx";

const SHOWN = 6;

const columns: Column<RequestFailure>[] = [
  { id: "when", label: "When", cell: ({ at }) => <When time={at} /> },
  {
    id: "what",
    label: "What",
    cell: ({ status, code, times, message }) => (
      <>
        <span className="row">
          <Status tone={status < 500 ? "warn" : "bad"}>{`${status} ${codeInWords(code)}`}</Status>
          {times > 1 && <span className="tag">{times} times</span>}
        </span>
        <span className="phone-only breaks muted small">{message}</span>
      </>
    ),
  },
  {
    id: "where",
    label: "Model",
    wide: true,
    cell: ({ model, backend }) =>
      model === null ? (
        <span className="muted" title="The request was refused before its model was known">
          unknown
        </span>
      ) : (
        <span className="nowrap">
          <span className="mono">{model}</span>
          {backend && <span className="muted"> at {backend}</span>}
        </span>
      ),
  },
  {
    id: "why",
    label: "Reason",
    wide: true,
    cell: ({ message }) => (
      <span className="clamp reason" title={message}>
        {message}
      </span>
    ),
  },
  {
    id: "request",
    label: "Request",
    wide: true,
    cell: ({ request_id }) => <Copyable text={request_id} shown={shortRequestId(request_id)} />,
  },
];

/** Recent failures of all users; the request id leads to the log and to the client's own trace. */
export function LatestFailures() {
  const query = useActivity();
  const [all, setAll] = useState(false);
  const total = query.data?.failures.length ?? 0;
  return (
    <Section
      title="Latest failures"
      actions={
        total > SHOWN && (
          <Button small look="quiet" onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `Show all ${total}`}
          </Button>
        )
      }
    >
      <Loaded query={query} outline={<TableSkeleton columns={columns} rows={3} />}>
        {({ failures }) =>
          failures.length === 0 ? (
            <Status tone="good">No request has failed since the service started.</Status>
          ) : (
            <Table
              label="Latest failures"
              columns={columns}
              rows={all ? failures : failures.slice(0, SHOWN)}
              rowKey={({ request_id }) => request_id}
            />
          )
        }
      </Loaded>
    </Section>
  );
}
