import { useState } from "react";
import { api } from "../../lib/api.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Link, navigate, useSearch } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button, Copyable, LinkButton } from "../../ui/controls.tsx";
import { Confirm, Dialog } from "../../ui/dialogs.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { CreateKey } from "./create.tsx";

type Key = Awaited<ReturnType<typeof listKeys>>[number];
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
      cell: ({ name }) => <strong>{name}</strong>,
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
      id: "created",
      label: "Created",
      wide: true,
      sort: ({ created_at }) => created_at,
      cell: ({ created_at }) => <When time={created_at} />,
    },
    {
      id: "state",
      label: "State",
      sort: ({ active }) => Number(active),
      cell: ({ active, revoked_at }) =>
        active ? (
          <Status tone="good">Active</Status>
        ) : (
          <Status tone="plain" icon="close">
            Revoked <When time={revoked_at} />
          </Status>
        ),
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

function KeySheet({ value, onClose }: { value: Key; onClose(): void }) {
  const [revoking, setRevoking] = useState(false);
  return (
    <Dialog title={value.name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>State</dt>
          <dd>
            {value.active ? <Status tone="good">Active</Status> : <Status tone="plain">Revoked</Status>}
          </dd>
          <dt>Prefix</dt>
          <dd>
            <code>service-{value.key_prefix}…</code>
          </dd>
          <dt>Project</dt>
          <dd>
            <Link href={`/usage?project=${encodeURIComponent(value.project)}`}>{value.project}</Link>
          </dd>
          <dt>Created</dt>
          <dd>
            <When time={value.created_at} />
          </dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={value.id} />
          </dd>
        </dl>
        <div className="row wrap">
          <LinkButton href={`/usage?key=${value.key_prefix}`} icon="usage">
            Usage
          </LinkButton>
          {value.active && (
            <>
              <LinkButton href={`/keys/${value.id}/first-call`} icon="play">
                First call
              </LinkButton>
              <Button look="danger" icon="trash" onClick={() => setRevoking(true)}>
                Revoke
              </Button>
            </>
          )}
        </div>
      </div>
      {revoking && (
        <Confirm
          title={`Revoke ${value.name}?`}
          consequence="Programs that use this key will be refused immediately. This cannot be undone."
          confirm="Revoke now"
          onClose={() => setRevoking(false)}
          onConfirm={async () => {
            await api("keys.revoke", { key_id: value.id });
            invalidate("keys");
            toast(`${value.name} no longer works`);
          }}
        />
      )}
    </Dialog>
  );
}
