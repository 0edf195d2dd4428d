import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { count, seconds } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import type { MemoryEvent } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { Empty, FormError, Loaded, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const EVERY_MS = 10_000;
const KINDS: Record<MemoryEvent["kind"], string> = {
  recall: "Recalled",
  writeback: "Remembered",
  delete: "Forgot",
};

const columns: Column<MemoryEvent>[] = [
  { id: "when", label: "When", cell: ({ at }) => <When time={at} /> },
  { id: "kind", label: "What", cell: ({ kind }) => KINDS[kind] },
  {
    id: "outcome",
    label: "Outcome",
    cell: ({ outcome, detail }) =>
      outcome === "ok" ? (
        <Status tone="good">Worked</Status>
      ) : (
        <Status tone="bad">{detail ?? "Failed"}</Status>
      ),
  },
  { id: "count", label: "Facts", numeric: true, cell: ({ count: facts }) => count(facts) },
  { id: "time", label: "Took", numeric: true, cell: ({ duration_ms }) => seconds(duration_ms) },
];

export function Page() {
  const status = useQuery("memory", () => api("memory.status"), { everyMs: EVERY_MS });
  return (
    <>
      <PageHead title="Memory">
        What chat remembers about you across conversations. It never delays an answer: if it does not respond,
        chat continues without it.
      </PageHead>
      <Loaded query={status}>
        {({ enabled, writeback, events }) => (
          <>
            <div className="row wrap">
              <Status tone={enabled ? "good" : "plain"}>
                {enabled ? "Memory is on" : "No memory service is configured"}
              </Status>
              {enabled && (
                <Status tone={writeback ? "good" : "plain"}>
                  {writeback ? "New facts are remembered" : "Nothing new is remembered"}
                </Status>
              )}
            </div>
            {enabled && <Forget />}
            <Section title="Lately">
              {events.length === 0 ? (
                <Empty icon="memory" title="Nothing yet">
                  {enabled
                    ? "A line appears here each time chat recalls or stores something."
                    : "The operator turns memory on by setting SERVICE_MEMORY_URL."}
                </Empty>
              ) : (
                <Table
                  label="Memory activity"
                  columns={columns}
                  rows={events}
                  rowKey={({ at, kind }) => `${at}${kind}`}
                />
              )}
            </Section>
          </>
        )}
      </Loaded>
    </>
  );
}

function Forget() {
  const [id, setId] = useState("");
  const forget = useAction(async () => {
    const { deleted } = await api("memory.delete", { node_id: id });
    toast(deleted ? "Forgotten" : "You have no such fact", deleted ? "good" : "bad");
    setId("");
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void forget.run();
  };
  return (
    <Section title="Forget one fact">
      <form className="form narrow" onSubmit={submit}>
        <TextField label="Id of the fact" value={id} onChange={setId} required hint="As returned by recall" />
        <FormError error={forget.error} />
        <div>
          <Button type="submit" busy={forget.busy}>
            Forget
          </Button>
        </div>
      </form>
    </Section>
  );
}
