import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { count, seconds } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import type { MemoryEvent } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
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
      outcome === "ok" ? <Status tone="good">OK</Status> : <Status tone="bad">{detail ?? "Failed"}</Status>,
  },
  { id: "count", label: "Facts", numeric: true, cell: ({ count: facts }) => count(facts) },
  { id: "time", label: "Took", numeric: true, wide: true, cell: ({ duration_ms }) => seconds(duration_ms) },
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
            {enabled && <Facts />}
            <Section title="Recent activity">
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

type Fact = Result<"memory.list">["items"][number];
const PAGE_FACTS = 200;
/** More than this are not fetched; the page says so. */
const FACTS_MAX = 2_000;

/** Everything that is remembered, so that it can be searched. */
async function allFacts(): Promise<{ facts: Fact[]; total: number }> {
  const facts: Fact[] = [];
  for (;;) {
    const page = await api("memory.list", { limit: PAGE_FACTS, offset: facts.length });
    facts.push(...page.items);
    if (page.items.length === 0 || facts.length >= Math.min(page.total, FACTS_MAX))
      return { facts, total: page.total };
  }
}

function Facts() {
  const query = useQuery("memory facts", allFacts);
  const [words, setWords] = useState("");
  const forget = useAction(async ({ node_id }: Fact) => {
    const { deleted } = await api("memory.delete", { node_id });
    toast(deleted ? "Forgotten" : "It was forgotten already", "good");
    await query.reload();
  });
  const wanted = words.trim().toLowerCase();
  const factColumns: Column<Fact>[] = [
    { id: "text", label: "Fact", cell: ({ text }) => <span className="breaks">{text}</span> },
    {
      id: "forget",
      label: "",
      cell: (fact) => (
        <Button
          small
          look="quiet"
          icon="trash"
          aria-label={`Forget: ${fact.text}`}
          disabled={forget.busy}
          onClick={() => void forget.run(fact)}
        />
      ),
    },
  ];
  return (
    <Section
      title="What is remembered"
      actions={
        <input
          className="input small"
          type="search"
          aria-label="Search what is remembered"
          placeholder="Search"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
      }
    >
      <Loaded query={query} outline={<TableSkeleton columns={factColumns} rows={3} />}>
        {({ facts, total }) => {
          const found = facts.filter(({ text }) => text.toLowerCase().includes(wanted));
          if (total === 0)
            return (
              <Empty icon="memory" title="Nothing is remembered yet">
                What you tell a model about yourself in a chat appears here, and can be forgotten again.
              </Empty>
            );
          return (
            <div className="stack">
              <FormError error={forget.error} />
              {found.length === 0 ? (
                <p className="muted">Nothing that is remembered contains “{words.trim()}”.</p>
              ) : (
                <Table
                  label="What is remembered"
                  columns={factColumns}
                  rows={found}
                  rowKey={({ node_id }) => node_id}
                />
              )}
              {total > facts.length && (
                <p className="muted small">
                  The newest {count(facts.length)} of {count(total)} facts are shown and searched.
                </p>
              )}
            </div>
          );
        }}
      </Loaded>
    </Section>
  );
}
