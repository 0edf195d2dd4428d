import { api } from "../../lib/api.ts";
import { exactTime } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { Button, Copyable, SmallSelect } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { type Entry, fieldInWords, sentenceOf, valueInWords } from "./words.ts";

/** How actions begin, by what they are about. */
const SUBJECTS = [
  { value: "", label: "Everything" },
  { value: "auth.", label: "Sign-ins and passwords" },
  { value: "users.", label: "Users" },
  { value: "keys.", label: "Keys" },
  { value: "group.", label: "Groups" },
  { value: "backends.", label: "Backends" },
  { value: "routes.", label: "Model routes" },
  { value: "billing.", label: "Prices and tiers" },
  { value: "agents.", label: "Nodes" },
  { value: "settings.", label: "Settings" },
  { value: "POST /api/admin", label: "Added by the admin token" },
  { value: "DELETE /api/admin", label: "Removed by the admin token" },
];

const columns: Column<Entry>[] = [
  { id: "at", label: "When", cell: ({ at }) => <When time={at} /> },
  { id: "actor", label: "Who", wide: true, cell: ({ actor }) => <span className="breaks">{actor}</span> },
  {
    id: "action",
    label: "What",
    cell: (entry) => (
      <span className="breaks">
        <span className="phone-only">{entry.actor} </span>
        {sentenceOf(entry)}
      </span>
    ),
  },
  { id: "ip", label: "From", wide: true, cell: ({ ip }) => <code className="nowrap">{ip}</code> },
];

export function Page() {
  const [search, setSearch] = useSearch();
  const actor = search.get("q") ?? "";
  const action = search.get("about") ?? "";
  const cursor = search.get("cursor") ?? "";
  const query = useQuery(`audit ${actor} ${action} ${cursor}`, () =>
    api("audit.list", {
      ...(actor.trim() && { actor: actor.trim() }),
      ...(action && { action }),
      ...(cursor && { cursor }),
    }),
  );
  const open = query.data?.entries.find(({ id }) => id === search.get("open"));
  const isFiltered = actor !== "" || action !== "";
  return (
    <>
      <PageHead title="Audit log">
        Every change that someone made here: who, what, to whom and from where. Nobody can edit it.
      </PageHead>
      <div className="filters">
        <input
          className="input small"
          type="search"
          aria-label="Search by email or user id"
          placeholder="Who: email or user id"
          value={actor}
          onChange={(event) => setSearch({ q: event.target.value || null, cursor: null })}
        />
        <SmallSelect
          label="About"
          value={action}
          onChange={(about) => setSearch({ about: about || null, cursor: null })}
          choices={SUBJECTS}
        />
      </div>
      <Loaded query={query} outline={<TableSkeleton columns={columns} />}>
        {({ entries, next_cursor }) =>
          entries.length === 0 ? (
            <Empty icon="shield" title={isFiltered ? "No entry matches" : "Nothing was changed yet"}>
              {isFiltered
                ? "Entries are kept as long as the operator set it, a year by default."
                : "The next change of a key, a person or a backend is listed here."}
            </Empty>
          ) : (
            <>
              <Table
                label="Audit log"
                columns={columns}
                rows={entries}
                rowKey={({ id }) => id}
                onOpen={({ id }) => setSearch({ open: id })}
              />
              <div className="row">
                <Button small disabled={!cursor} onClick={() => setSearch({ cursor: null })}>
                  Newest
                </Button>
                <Button small disabled={!next_cursor} onClick={() => setSearch({ cursor: next_cursor })}>
                  Older
                </Button>
              </div>
            </>
          )
        }
      </Loaded>
      {open && <EntrySheet entry={open} onClose={() => setSearch({ open: null })} />}
    </>
  );
}

function EntrySheet({ entry, onClose }: { entry: Entry; onClose(): void }) {
  const { before: recorded, ...asked } = entry.details;
  const before = (recorded ?? {}) as Record<string, unknown>;
  return (
    <Dialog title={`${entry.actor} ${sentenceOf(entry)}`} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>When</dt>
          <dd>{exactTime(entry.at)}</dd>
          <dt>Who</dt>
          <dd>{entry.actor}</dd>
          {entry.actor_id && (
            <>
              <dt>User id</dt>
              <dd>
                <Copyable text={entry.actor_id} />
              </dd>
            </>
          )}
          <dt>Target</dt>
          <dd>{entry.target ? <Copyable text={entry.target} /> : "nobody else"}</dd>
          <dt>Method</dt>
          <dd>
            <code>{entry.action}</code>
          </dd>
          <dt>From</dt>
          <dd>
            <code>{entry.ip}</code>
          </dd>
          <dt>Program</dt>
          <dd>{entry.user_agent ?? "unknown"}</dd>
          <dt>Request</dt>
          <dd>
            <Copyable text={entry.request_id} />
          </dd>
        </dl>
        <h3>What was asked for</h3>
        <dl className="facts">
          {Object.entries(asked).map(([name, value]) => [
            <dt key={name}>{fieldInWords(name)}</dt>,
            <dd key={`${name} value`}>
              {valueInWords(name, value)}
              {name in before && <span className="muted"> (was {valueInWords(name, before[name])})</span>}
            </dd>,
          ])}
        </dl>
      </div>
    </Dialog>
  );
}
