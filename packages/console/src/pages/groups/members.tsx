import { oneTimeLink } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { SERVICE_URL } from "../../lib/base.ts";
import { session } from "../../lib/client.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { Member } from "../../lib/records.ts";
import { useStore } from "../../lib/store.ts";
import { toast } from "../../lib/toast.ts";
import { Code } from "../../ui/code.tsx";
import type { Choice } from "../../ui/combobox.tsx";
import { Button, Check, SelectField, TextField } from "../../ui/controls.tsx";
import { Confirm, Dialog, FormDialog } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { Note, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import type { GroupView } from "./detail.tsx";
import { Invitations } from "./invitations.tsx";

const ROLES: readonly Choice<Member["role"]>[] = [
  { value: "member", label: "member: uses the pool" },
  { value: "admin", label: "admin: also manages the group" },
];

const columns: Column<Member>[] = [
  {
    id: "name",
    label: "Name",
    sort: ({ name }) => name.toLowerCase(),
    cell: ({ name }) => <strong>{name}</strong>,
  },
  { id: "email", label: "Email", wide: true, sort: ({ email }) => email, cell: ({ email }) => email },
  {
    id: "role",
    label: "Role",
    cell: ({ role, is_owner }) => <span className="tag">{is_owner ? "owner" : role}</span>,
  },
  {
    id: "multiplier",
    label: "Cost multiplier",
    wide: true,
    numeric: true,
    sort: ({ cost_multiplier }) => cost_multiplier,
    cell: ({ cost_multiplier }) => `× ${cost_multiplier}`,
  },
  {
    id: "joined",
    label: "Joined",
    wide: true,
    sort: ({ joined_at }) => joined_at,
    cell: ({ joined_at }) => <When time={joined_at} />,
  },
  {
    id: "state",
    label: "State",
    cell: ({ is_active }) =>
      is_active ? <Status tone="good">Active</Status> : <Status tone="warn">Deactivated</Status>,
  },
];

export function GroupMembers({ group, manages }: { group: GroupView; manages: boolean }) {
  const all = useQuery(manages ? `group ${group.id} members` : null, () =>
    api("group.members.list", { group_id: group.id, include_inactive: true }),
  );
  const [dialog, setDialog] = useState<"add" | "invite" | Member | null>(null);
  const members = all.data ?? group.members;
  const close = () => setDialog(null);
  return (
    <Section
      title="Members"
      actions={
        manages && (
          <>
            <Button icon="link" onClick={() => setDialog("invite")}>
              Invite
            </Button>
            <Button look="primary" icon="plus" onClick={() => setDialog("add")}>
              Add member
            </Button>
          </>
        )
      }
    >
      <Table
        label="Members"
        columns={columns}
        rows={members}
        rowKey={({ user_id }) => user_id}
        words={({ name, email }) => `${name} ${email}`}
        dim={({ is_active }) => !is_active}
        onOpen={manages ? (member) => setDialog(member) : undefined}
      />
      {manages && <Invitations groupId={group.id} />}
      {dialog === "add" && <AddMember groupId={group.id} onClose={close} />}
      {dialog === "invite" && <Invite groupId={group.id} onClose={close} />}
      {dialog !== null && typeof dialog === "object" && (
        <MemberSheet groupId={group.id} member={dialog} onClose={close} />
      )}
    </Section>
  );
}

const changed = (groupId: string) => {
  invalidate(`group ${groupId}`);
  invalidate("groups");
};

function AddMember({ groupId, onClose }: { groupId: string; onClose(): void }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Member["role"]>("member");
  const [multiplier, setMultiplier] = useState("1");
  const add = async () => {
    await api("group.members.add", { group_id: groupId, email, role, cost_multiplier: Number(multiplier) });
    changed(groupId);
    toast(`${email} is a member now`);
  };
  return (
    <FormDialog title="Add a member" submit="Add member" onSubmit={add} onClose={onClose}>
      <TextField
        label="Email"
        type="email"
        value={email}
        onChange={setEmail}
        required
        hint="For someone who already has an account; invite others instead"
      />
      <SelectField label="Role" value={role} onChange={setRole} choices={ROLES} />
      <Multiplier value={multiplier} onChange={setMultiplier} />
    </FormDialog>
  );
}

const MULTIPLIER_MIN = 0.000001;

/** Below 1 only a platform administrator may go; one that is already `given` may stay. */
function Multiplier({
  given = 1,
  ...field
}: {
  given?: number;
  value: string;
  onChange(value: string): void;
}) {
  const isAdmin = useStore(session)?.user.is_admin ?? false;
  return (
    <TextField
      {...field}
      label="Cost multiplier"
      type="number"
      min={isAdmin ? MULTIPLIER_MIN : Math.min(1, given)}
      step="any"
      hint={`The cost of this member's requests to the pool is multiplied by this${isAdmin ? "" : "; below 1 only a platform administrator may set it"}`}
    />
  );
}

function Invite({ groupId, onClose }: { groupId: string; onClose(): void }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Member["role"]>("member");
  const [uses, setUses] = useState("1");
  const [days, setDays] = useState("7");
  const [token, setToken] = useState<string | null>(null);
  if (token !== null) {
    // The only time that the token can be seen.
    return (
      <Dialog title="The invitation" closing="when copied" onClose={onClose}>
        <div className="stack">
          <p>Send this link to the person you invite:</p>
          <Code label="Invitation link" text={oneTimeLink(SERVICE_URL, "join", token)} />
          <Note tone="warn">
            It is shown once. Anyone who has it can join until it expires or is used up.
          </Note>
        </div>
      </Dialog>
    );
  }
  const invite = async () => {
    const made = await api("group.invite.create", {
      group_id: groupId,
      role,
      max_uses: Number(uses),
      ttl_secs: Number(days) * 86_400,
      ...(email && { email }),
    });
    setToken(made.token);
    invalidate(`group ${groupId} invitations`);
  };
  return (
    <FormDialog
      title="Invite someone"
      submit="Create invitation"
      onSubmit={invite}
      onDone={() => {}}
      onClose={onClose}
    >
      <TextField
        label="Email"
        type="email"
        value={email}
        onChange={setEmail}
        hint="Leave it empty to let anyone with the link join"
      />
      <SelectField label="Role" value={role} onChange={setRole} choices={ROLES} />
      <div className="columns">
        <TextField label="Uses" type="number" min={1} max={1000} value={uses} onChange={setUses} />
        <TextField label="Valid for days" type="number" min={1} max={365} value={days} onChange={setDays} />
      </div>
    </FormDialog>
  );
}

function MemberSheet({ groupId, member, onClose }: { groupId: string; member: Member; onClose(): void }) {
  const [role, setRole] = useState(member.role);
  const [multiplier, setMultiplier] = useState(String(member.cost_multiplier));
  const [active, setActive] = useState(member.is_active);
  const [removing, setRemoving] = useState(false);
  const save = async () => {
    await api("group.members.update", {
      group_id: groupId,
      user_id: member.email,
      cost_multiplier: Number(multiplier),
      ...(!member.is_owner && { role, is_active: active }),
    });
    changed(groupId);
    toast("Saved");
  };
  if (removing) {
    return (
      <Confirm
        title={`Remove ${member.name}?`}
        consequence={`${member.email} leaves the group, and the keys they made for it stop working now.`}
        confirm="Remove"
        onClose={onClose}
        onConfirm={async () => {
          await api("group.members.remove", { group_id: groupId, user_id: member.email });
          changed(groupId);
        }}
      />
    );
  }
  return (
    <FormDialog title={member.name} kind="sheet" submit="Save" onSubmit={save} onClose={onClose}>
      <p className="muted">{member.email}</p>
      {!member.is_owner && <SelectField label="Role" value={role} onChange={setRole} choices={ROLES} />}
      <Multiplier value={multiplier} onChange={setMultiplier} given={member.cost_multiplier} />
      {member.is_owner ? (
        <Note>
          <span className="muted">The owner cannot be deactivated or removed.</span>
        </Note>
      ) : (
        <>
          <Check label="Active: their keys for this group work" checked={active} onChange={setActive} />
          <div>
            <Button look="danger" icon="trash" onClick={() => setRemoving(true)}>
              Remove from the group
            </Button>
          </div>
        </>
      )}
    </FormDialog>
  );
}
