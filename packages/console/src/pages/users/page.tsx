import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { count, plural } from "../../lib/format.ts";
import { useGroups } from "../../lib/groups.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { navigate, useSearch } from "../../lib/router.ts";
import { asChoices } from "../../ui/combobox.tsx";
import { Button, Check, SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Codes } from "./codes.tsx";
import { LinkDialog, Links, type ShownLink } from "./links.tsx";
import { UserState } from "./person.tsx";
import { isOwnTier, Tiers } from "./tiers.tsx";

export type User = Result<"users.list">["users"][number];

/** The most that one call gives: the newest; others are found by searching. */
const LISTED_MAX = 1_000;

const columns: Column<User>[] = [
  {
    id: "name",
    label: "Name",
    sort: ({ name }) => name.toLowerCase(),
    cell: ({ name }) => <strong>{name}</strong>,
  },
  { id: "email", label: "Email", wide: true, sort: ({ email }) => email, cell: ({ email }) => email },
  {
    id: "tier",
    label: "Tier",
    sort: ({ tier }) => (isOwnTier(tier) ? "own limits" : tier),
    cell: ({ tier }) => <span className="tag">{isOwnTier(tier) ? "own limits" : tier}</span>,
  },
  {
    id: "rights",
    label: "Rights",
    wide: true,
    sort: ({ is_admin }) => (is_admin ? "administrator" : "user"),
    cell: ({ is_admin }) => (is_admin ? "administrator" : <span className="muted">user</span>),
  },
  {
    id: "keys",
    label: "Keys",
    numeric: true,
    wide: true,
    sort: ({ active_keys }) => active_keys,
    cell: ({ active_keys }) => count(active_keys),
  },
  {
    id: "seen",
    label: "Last seen",
    wide: true,
    sort: ({ last_seen_at }) => last_seen_at ?? "",
    cell: ({ last_seen_at }) => <When time={last_seen_at} />,
  },
  {
    id: "state",
    label: "State",
    sort: ({ disabled }) => (disabled ? "disabled" : "active"),
    cell: (user) => <UserState user={user} />,
  },
];

export function Page() {
  const [search, setSearch] = useSearch();
  const [link, setLink] = useState<ShownLink | null>(null);
  const words = search.get("q") ?? "";
  const query = useQuery(`users ${words}`, () => api("users.list", { search: words, limit: LISTED_MAX }));
  return (
    <>
      <PageHead
        title="Users"
        actions={
          <>
            <Button icon="plus" onClick={() => setSearch({ new: "1" })}>
              Create user
            </Button>
            <Button look="primary" icon="link" onClick={() => setSearch({ invite: "1" })}>
              Invite
            </Button>
          </>
        }
      >
        Who has an account here, what they may do, and who is invited.
      </PageHead>
      <input
        className="input"
        type="search"
        aria-label="Search by name or email"
        placeholder="Search by name or email"
        value={words}
        onChange={(event) => setSearch({ q: event.target.value })}
      />
      <Loaded query={query} outline={<TableSkeleton columns={columns} />}>
        {({ users, total }) => (
          <>
            {users.length === 0 ? (
              <p className="muted">Nobody matches “{words}”.</p>
            ) : (
              <Table
                label="Users"
                columns={columns}
                rows={users}
                rowKey={({ id }) => id}
                dim={({ disabled }) => disabled}
                onOpen={({ id }) => navigate(`/users/${id}`)}
              />
            )}
            {total > users.length && (
              <p className="muted">
                These are the newest {count(users.length)} of {plural(total, "user")}. Search to find others.
              </p>
            )}
          </>
        )}
      </Loaded>
      <Section title="Pending invitations">
        <Links />
      </Section>
      <Codes />
      <Tiers />
      {search.has("new") && <CreateUser onClose={() => setSearch({ new: null })} onLink={setLink} />}
      {search.has("invite") && <Invite onClose={() => setSearch({ invite: null })} onLink={setLink} />}
      {link && <LinkDialog {...link} onClose={() => setLink(null)} />}
    </>
  );
}

interface LinkFormProps {
  onClose(): void;
  onLink(link: ShownLink): void;
}

/** Empty: the tier that the settings give to new people. */
function TierField(field: { value: string; onChange(tier: string): void }) {
  const tiers = useQuery("plan", () => api("billing.plan")).data?.tiers ?? [];
  const settings = useQuery("settings", () => api("settings.list")).data ?? [];
  const usual = settings.find(({ name }) => name === "SERVICE_NEW_ACCOUNT_TIER")?.value;
  const named = tiers.map(({ name }) => name).filter((name) => !isOwnTier(name) && name !== usual);
  return (
    <SelectField
      {...field}
      label="Tier"
      choices={[{ value: "", label: usual ? `${usual} (default)` : "default" }, ...asChoices(named)]}
    />
  );
}

const RIGHTS = [
  { value: "user", label: "User" },
  { value: "admin", label: "Administrator of this service" },
] as const;

function Invite({ onClose, onLink }: LinkFormProps) {
  const groups = useGroups().data ?? [];
  const [email, setEmail] = useState("");
  const [rights, setRights] = useState<"user" | "admin">("user");
  const [tier, setTier] = useState("");
  const [groupId, setGroupId] = useState("");
  const [note, setNote] = useState("");
  const invite = async () => {
    const link = await api("users.invite", {
      is_admin: rights === "admin",
      ...(tier && { tier }),
      ...(email && { email }),
      ...(groupId && { group_id: groupId }),
      ...(note && { note }),
    });
    invalidate("links");
    onLink({ ...link, text: `Send this link to ${email || "the person you invite"}. It makes one account.` });
  };
  return (
    <FormDialog title="Invite someone" submit="Create link" onSubmit={invite} onClose={onClose}>
      <TextField
        label="Email"
        type="email"
        value={email}
        onChange={setEmail}
        hint="Leave it empty to let anyone with the link make the account"
      />
      <div className="columns">
        <SelectField label="Role" value={rights} onChange={setRights} choices={RIGHTS} />
        <TierField value={tier} onChange={setTier} />
      </div>
      {groups.length > 0 && (
        <SelectField
          label="Group"
          value={groupId}
          onChange={setGroupId}
          choices={[
            { value: "", label: "None" },
            ...groups.map(({ id, name }) => ({ value: id, label: name })),
          ]}
        />
      )}
      <TextField
        label="Note"
        value={note}
        onChange={setNote}
        maxLength={500}
        hint="Shown to the person who is invited"
      />
    </FormDialog>
  );
}

function CreateUser({ onClose, onLink }: LinkFormProps) {
  const [email, setEmail] = useState("");
  const [name, setName] = useState("");
  const [tier, setTier] = useState("");
  const [admin, setAdmin] = useState(false);
  const create = async () => {
    const { link } = await api("users.create", {
      email,
      is_admin: admin,
      ...(tier && { tier }),
      ...(name.trim() && { name: name.trim() }),
    });
    invalidate("users");
    invalidate("links");
    onLink({ ...link, text: `Send this link to ${email}, who chooses a password with it.` });
  };
  return (
    <FormDialog title="Create a user" submit="Create user" onSubmit={create} onClose={onClose}>
      <TextField label="Email" type="email" value={email} onChange={setEmail} required />
      <TextField label="Name" value={name} onChange={setName} maxLength={80} hint="Optional" />
      <TierField value={tier} onChange={setTier} />
      <Check label="Administrator of this service" checked={admin} onChange={setAdmin} />
    </FormDialog>
  );
}
