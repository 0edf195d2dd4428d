import { api } from "../../lib/api.ts";
import { useQuery } from "../../lib/query.ts";
import { navigate, useSearch } from "../../lib/router.ts";
import { Button } from "../../ui/controls.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { CreateKey } from "./create.tsx";
import { isExpired, type Key, spentOf } from "./limits.tsx";
import { isCaptured, KeySheet, KeyState } from "./sheet.tsx";

const listKeys = () => api("keys.list");

function useColumns(): Column<Key>[] {
  const groups = useQuery("groups", () => api("group.list")).data ?? [];
  const groupName = (id: string | null) =>
    groups.find((group) => group.id === id)?.name ?? (id ? "a group" : "you");
  return [
    {
      id: "name",
      label: "Name",
      sort: ({ name }) => name.toLowerCase(),
      cell: (key) => (
        <span className="row wrap">
          <strong>{key.name}</strong>
          {isCaptured(key) && <Status tone="warn">prompts captured</Status>}
        </span>
      ),
    },
    {
      id: "prefix",
      label: "Prefix",
      wide: true,
      cell: ({ key_prefix }) => <code className="nowrap">service-{key_prefix}…</code>,
    },
    {
      id: "project",
      label: "Project",
      wide: true,
      sort: ({ project }) => project,
      cell: ({ project }) => <span className="tag">{project}</span>,
    },
    {
      id: "payer",
      label: "Paid by",
      wide: true,
      sort: ({ group_id }) => groupName(group_id),
      cell: ({ group_id }) => groupName(group_id),
    },
    {
      id: "spent",
      label: "This month",
      numeric: true,
      sort: ({ spent_month_usd }) => spent_month_usd,
      cell: ({ spent_month_usd, monthly_budget_usd }) => (
        <span className="nowrap">{spentOf(spent_month_usd, monthly_budget_usd)}</span>
      ),
    },
    {
      id: "used",
      label: "Last used",
      wide: true,
      sort: ({ last_used_at }) => last_used_at ?? "",
      cell: ({ last_used_at }) => <When time={last_used_at} />,
    },
    {
      id: "created",
      label: "Created",
      wide: true,
      sort: ({ created_at }) => created_at,
      cell: ({ created_at }) => <When time={created_at} />,
    },
    {
      id: "state",
      label: "State",
      sort: (key) => (key.active ? (isExpired(key) ? 1 : 2) : 0),
      cell: (key) => <KeyState value={key} />,
    },
  ];
}

export function Page() {
  const [search, setSearch] = useSearch();
  const keys = useQuery("keys", listKeys);
  const columns = useColumns();
  const open = keys.data?.find(({ id }) => id === search.get("open"));
  const create = () => setSearch({ new: "1" });
  return (
    <>
      <PageHead
        title="Keys"
        actions={
          <Button look="primary" icon="plus" onClick={create}>
            Create key
          </Button>
        }
      >
        Programs call the gateway with these. A key is shown once, when it is made; only its fingerprint is
        kept.
      </PageHead>
      <Loaded query={keys} outline={<TableSkeleton columns={columns} />}>
        {(list) =>
          list.length === 0 ? (
            <Empty
              icon="keys"
              title="No keys yet"
              action={
                <Button look="primary" icon="plus" onClick={create}>
                  Create key
                </Button>
              }
            >
              Each program should have its own key: its use is metered under the key's project, and it can be
              revoked alone.
            </Empty>
          ) : (
            <Table
              label="Your keys"
              columns={columns}
              rows={list}
              rowKey={({ id }) => id}
              dim={({ active }) => !active}
              onOpen={({ id }) => setSearch({ open: id })}
            />
          )
        }
      </Loaded>
      {search.has("new") && (
        <CreateKey
          onClose={() => setSearch({ new: null })}
          onCreated={(key) => navigate(`/keys/${key.id}/first-call`, { replace: true })}
        />
      )}
      {open && <KeySheet value={open} onClose={() => setSearch({ open: null })} />}
    </>
  );
}
