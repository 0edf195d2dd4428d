import { useState } from "react";
import { api } from "../../lib/api.ts";
import { plural, points } from "../../lib/format.ts";
import { useGroups } from "../../lib/groups.ts";
import { invalidate } from "../../lib/query.ts";
import type { Group } from "../../lib/records.ts";
import { navigate, useSearch } from "../../lib/router.ts";
import { Button, LinkButton, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { PageHead } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import type { PageProps } from "../index.ts";
import { GroupDetail } from "./detail.tsx";

const columns: Column<Group>[] = [
  {
    id: "name",
    label: "Name",
    sort: ({ name }) => name.toLowerCase(),
    cell: ({ name }) => <strong>{name}</strong>,
  },
  {
    id: "description",
    label: "For",
    wide: true,
    cell: ({ description }) => <span className="muted">{description}</span>,
  },
  {
    id: "role",
    label: "You are",
    sort: ({ my_role }) => my_role ?? "",
    cell: ({ my_role }) => (my_role ? <span className="tag">{my_role}</span> : ""),
  },
  {
    id: "members",
    label: "Members",
    numeric: true,
    sort: ({ member_count }) => member_count,
    cell: ({ member_count }) => member_count,
  },
  {
    id: "pool",
    label: "Pool",
    numeric: true,
    sort: ({ balance }) => balance,
    cell: ({ balance }) => points(balance),
  },
  {
    id: "models",
    label: "Models",
    wide: true,
    cell: ({ enforce_model_allowlist }) =>
      enforce_model_allowlist ? "only allowed ones" : "all but denied ones",
  },
  {
    id: "created",
    label: "Created",
    wide: true,
    sort: ({ created_at }) => created_at,
    cell: ({ created_at }) => <When time={created_at} />,
  },
];

export function Page({ params }: PageProps) {
  return params.id ? <GroupDetail id={params.id} tab={params.tab ?? "members"} /> : <GroupList />;
}

function GroupList() {
  const [search, setSearch] = useSearch();
  const groups = useGroups();
  const create = (
    <Button look="primary" icon="plus" onClick={() => setSearch({ new: "1" })}>
      Create group
    </Button>
  );
  return (
    <>
      <PageHead
        title="Groups"
        actions={
          <>
            <LinkButton href="/join" icon="link">
              Join by invitation
            </LinkButton>
            {create}
          </>
        }
      >
        People who share a pool of points, the models they may use and a limit on requests.
      </PageHead>
      <Loaded query={groups} outline={<TableSkeleton columns={columns} />}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="groups" title="No group yet" action={create}>
              A group has members, a shared pool of points and its own rules on models. Keys made for it draw
              on the pool.
            </Empty>
          ) : (
            <>
              <Table
                label="Groups"
                columns={columns}
                rows={list}
                rowKey={({ id }) => id}
                words={({ name, description }) => `${name} ${description}`}
                onOpen={({ id }) => navigate(`/groups/${id}`)}
              />
              <p className="muted small">{plural(list.length, "group")}</p>
            </>
          )
        }
      </Loaded>
      {search.has("new") && <CreateGroup onClose={() => setSearch({ new: null })} />}
    </>
  );
}

function CreateGroup({ onClose }: { onClose(): void }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const create = async () => {
    const group = await api("group.create", { name, ...(description && { description }) });
    invalidate("groups");
    navigate(`/groups/${group.id}`);
  };
  return (
    <FormDialog title="Create a group" submit="Create group" onSubmit={create} onClose={onClose}>
      <TextField label="Name" value={name} onChange={setName} required maxLength={80} />
      <TextField label="What it is for" value={description} onChange={setDescription} maxLength={500} />
    </FormDialog>
  );
}
