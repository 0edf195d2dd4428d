import type { Result } from "@model-gateway/client";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { count, money } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, FormError, Loaded, Status, type Tone, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const EVERY_MS = 5_000;

type Batch = Result<"batches.list">["batches"][number];

const TONES: Record<Batch["status"], Tone> = {
  in_progress: "plain",
  cancelling: "warn",
  completed: "good",
  failed: "bad",
  expired: "bad",
  cancelled: "warn",
};

const firstError = ({ errors }: Batch): string | undefined => {
  const error = errors?.data[0];
  return error && (error.line === null ? error.message : `Line ${error.line}: ${error.message}`);
};

const columns = (cancel: (batch: Batch) => React.ReactNode): Column<Batch>[] => [
  { id: "when", label: "Created", cell: ({ created_at }) => <When time={created_at * 1000} /> },
  { id: "batch", label: "Batch", wide: true, cell: ({ id }) => <code>{id}</code> },
  { id: "endpoint", label: "Endpoint", cell: ({ endpoint }) => <code>{endpoint}</code> },
  {
    id: "status",
    label: "Status",
    cell: (batch) => (
      <Status tone={TONES[batch.status]}>{firstError(batch) ?? batch.status.replace("_", " ")}</Status>
    ),
  },
  {
    id: "lines",
    label: "Answered",
    numeric: true,
    cell: ({ request_counts: { completed, failed, total } }) =>
      `${count(completed)} of ${count(total)}${failed > 0 ? `, ${count(failed)} failed` : ""}`,
  },
  { id: "cost", label: "Cost", numeric: true, cell: ({ cost_usd }) => money(cost_usd) },
  { id: "cancel", label: "", cell: cancel },
];

export function Page() {
  const batches = useQuery("batches", () => api("batches.list"), { everyMs: EVERY_MS });
  const cancel = useAction(async ({ id }: Batch) => {
    await api("batches.cancel", { batch_id: id });
    toast("No more of its lines are sent", "good");
    await batches.reload();
  });
  const shown = columns((batch) =>
    batch.status === "in_progress" ? (
      <Button
        small
        disabled={cancel.busy}
        aria-label={`Cancel ${batch.id}`}
        onClick={() => void cancel.run(batch)}
      >
        Cancel
      </Button>
    ) : null,
  );
  return (
    <>
      <PageHead title="Batches">
        Files of requests that your keys sent to /v1/batches. They are answered within 24 hours, when backends
        are idle.
      </PageHead>
      <FormError error={cancel.error} />
      <Loaded query={batches} outline={<TableSkeleton columns={shown} rows={3} />}>
        {({ batches: list }) =>
          list.length === 0 ? (
            <Empty
              icon="batches"
              title="No batches yet"
              action={<Link href="/docs/batches">How to upload a file and create one</Link>}
            >
              A program uploads a file of requests and creates the batch; its progress and cost appear here.
            </Empty>
          ) : (
            <Table label="Batches" columns={shown} rows={list} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
    </>
  );
}
