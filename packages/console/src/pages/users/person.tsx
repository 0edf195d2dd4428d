import type { Params, Result } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { plural, points } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Link, useSearch } from "../../lib/router.ts";
import { loadSetup } from "../../lib/setup.ts";
import { useStore } from "../../lib/store.ts";
import { toast } from "../../lib/toast.ts";
import { Button, Copyable, LinkButton, SelectField } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { PageHead, Section } from "../../ui/page.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, FormError, Loaded, Note, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import type { PageProps } from "../index.ts";
import { activeFirst, useKeyColumns } from "../keys/columns.tsx";
import { KeySheet } from "../keys/sheet.tsx";
import { programOf } from "../settings/sessions.tsx";
import { Spend } from "../usage/spend.tsx";
import { LinkDialog, type ShownLink } from "./links.tsx";
import type { User } from "./page.tsx";
import { EditTier, isOwnTier, limitsInWords, ownTier, type TierRow } from "./tiers.tsx";

type Patch = Omit<Params<"users.update">, "user_id">;

/** Who somebody is, what they may do, what they spend, and with which keys. */
export function Page({ params: { id = "" } }: PageProps) {
  const found = useQuery(`users ${id}`, () => api("users.list", { search: id, limit: 1 }));
  const [link, setLink] = useState<ShownLink | null>(null);
  return (
    <Loaded query={found}>
      {({ users: [user] }) =>
        user ? (
          <>
            <PageHead
              title={user.name}
              actions={
                <>
                  <LinkButton href={`/requests?user=${id}&range=30d`} icon="search">
                    Requests
                  </LinkButton>
                  <LinkButton href={`/usage?whose=all&user=${id}`} icon="usage">
                    Usage
                  </LinkButton>
                  <LinkButton href={`/audit?q=${encodeURIComponent(user.email)}`}>Audit log</LinkButton>
                </>
              }
            >
              {user.email}
            </PageHead>
            <Spend whose={{ everyone: true, user_id: id }} by="model" title="By model" />
            <TheirKeys userId={id} />
            <Belongings userId={id} />
            <Section title="Account">
              <Account user={user} onLink={setLink} />
            </Section>
            {link && <LinkDialog {...link} onClose={() => setLink(null)} />}
          </>
        ) : (
          <Empty
            icon="person"
            title="User not found"
            action={<LinkButton href="/users">All users</LinkButton>}
          >
            The address may be mistyped.
          </Empty>
        )
      }
    </Loaded>
  );
}

function TheirKeys({ userId }: { userId: string }) {
  const [search, setSearch] = useSearch();
  const keys = useQuery(`keys of ${userId}`, () => api("users.keys.list", { user_id: userId }));
  const columns = useKeyColumns("their account");
  const open = keys.data?.find(({ id }) => id === search.get("open"));
  return (
    <Section title="Keys">
      <Loaded query={keys} outline={<TableSkeleton columns={columns} />}>
        {(list) =>
          list.length === 0 ? (
            <p className="muted">No keys yet.</p>
          ) : (
            <Table
              label="Keys"
              columns={columns}
              rows={activeFirst(list)}
              words={({ name, project, key_prefix }) => `${name} ${project} ${key_prefix}`}
              rowKey={({ id }) => id}
              dim={({ active }) => !active}
              onOpen={({ id }) => setSearch({ open: id })}
            />
          )
        }
      </Loaded>
      {open && <KeySheet value={open} ownerId={userId} onClose={() => setSearch({ open: null })} />}
    </Section>
  );
}

/** Their points, groups and sign-ins. */
function Belongings({ userId }: { userId: string }) {
  const found = useQuery(`user ${userId}`, () => api("users.get", { user_id: userId }));
  return (
    <Loaded query={found}>
      {({ balance, groups, sessions }) => (
        <>
          <Section title="Points and groups">
            <dl className="facts">
              <dt>Wallet</dt>
              <dd>{points(balance)}</dd>
              <dt>Groups</dt>
              <dd>
                {groups.length === 0 && <span className="muted">none</span>}
                {groups.map(({ id, name, my_role }) => (
                  <div key={id}>
                    <Link href={`/groups/${id}`}>{name}</Link> <span className="muted">{my_role}</span>
                  </div>
                ))}
              </dd>
            </dl>
          </Section>
          <Section title="Sign-ins">
            {sessions.length === 0 ? (
              <p className="muted">Not signed in anywhere.</p>
            ) : (
              <Table label="Sign-ins" columns={SESSION_COLUMNS} rows={sessions} rowKey={({ id }) => id} />
            )}
          </Section>
        </>
      )}
    </Loaded>
  );
}

const SESSION_COLUMNS: Column<Result<"users.get">["sessions"][number]>[] = [
  {
    id: "where",
    label: "Device",
    cell: ({ user_agent }) => <strong title={user_agent ?? undefined}>{programOf(user_agent)}</strong>,
  },
  { id: "ip", label: "Address", cell: ({ ip }) => ip },
  { id: "since", label: "Since", wide: true, cell: ({ created_at }) => <When time={created_at} /> },
  { id: "used", label: "Last used", cell: ({ last_used_at }) => <When time={last_used_at} /> },
];

function Account({ user, onLink }: { user: User; onLink(link: ShownLink): void }) {
  const isSelf = useStore(session)?.user.id === user.id;
  const plan = useQuery("plan", () => api("billing.plan"));
  const [asking, setAsking] = useState<"disable" | "reset" | "admin" | "address" | "limits" | null>(null);
  const [chosenTier, setChosenTier] = useState<TierRow | null>(null);
  const tiers = plan.data?.tiers ?? [];
  const current = tiers.find((each) => each.name === user.tier);
  const { id, name, email, email_verified, is_admin, disabled, active_keys } = user;
  const setup = useQuery("setup", loadSetup);
  // It matters only where accounts can be linked to a provider's.
  const isUnconfirmed = setup.data?.provider && !email_verified;
  const change = useAction(async (patch: Patch) => {
    await api("users.update", { user_id: id, ...patch });
    invalidate("users");
    toast(`${name} is enabled`);
  });
  const confirmed = async (patch: Patch) => {
    await api("users.update", { user_id: id, ...patch });
    invalidate("users");
  };
  const close = () => setAsking(null);
  return (
    <>
      <div className="stack">
        <dl className="facts">
          <dt>State</dt>
          <dd>
            <UserState user={user} />
          </dd>
          <dt>Email</dt>
          <dd>
            {email}
            {isUnconfirmed && <span className="muted"> (not confirmed)</span>}
          </dd>
          <dt>Rights</dt>
          <dd>{is_admin ? "administrator" : "user"}</dd>
          <dt>Since</dt>
          <dd>
            <When time={user.created_at} />
          </dd>
          <dt>Last seen</dt>
          <dd>
            <When time={user.last_seen_at} />
          </dd>
          <dt>Id</dt>
          <dd>
            <Copyable text={id} />
          </dd>
        </dl>
        <div className="narrow">
          <SelectField
            label="Tier"
            value={user.tier}
            onChange={(tier) => setChosenTier(tiers.find((each) => each.name === tier) ?? null)}
            choices={tiers
              .filter((each) => each.name === user.tier || !isOwnTier(each.name))
              .map((each) => ({
                value: each.name,
                label: isOwnTier(each.name) ? "Limits of their own" : each.name,
              }))}
            hint={current && limitsInWords(current)}
          />
        </div>
        <div>
          <Button disabled={!current} onClick={() => setAsking("limits")}>
            {isOwnTier(user.tier) ? "Change their limits" : "Give them limits of their own"}
          </Button>
        </div>
        <FormError error={change.error} />
        {isSelf ? (
          <Note>
            This is you. Your password is under Settings; another administrator changes your rights.
          </Note>
        ) : (
          <div className="row wrap">
            <Button onClick={() => setAsking("admin")}>
              {is_admin ? "Remove administrator rights" : "Make administrator"}
            </Button>
            <Button onClick={() => setAsking("reset")}>Reset password</Button>
            {isUnconfirmed && <Button onClick={() => setAsking("address")}>Confirm address</Button>}
            {disabled ? (
              <Button busy={change.busy} onClick={() => void change.run({ disabled: false })}>
                Enable
              </Button>
            ) : (
              <Button look="danger" onClick={() => setAsking("disable")}>
                Disable
              </Button>
            )}
          </div>
        )}
      </div>
      {chosenTier && (
        <Confirm
          title={`Set the tier of ${name} to ${chosenTier.name}?`}
          consequence={`From now on: ${limitsInWords(chosenTier)}. What they spent this month counts.`}
          confirm="Set tier"
          onClose={() => setChosenTier(null)}
          onConfirm={async () => {
            await confirmed({ tier: chosenTier.name });
            toast(`Tier set to ${chosenTier.name}`);
          }}
        />
      )}
      {asking === "limits" && current && (
        <EditTier
          tier={{ ...current, name: ownTier(id) }}
          title={`Limits of ${name}`}
          onSaved={() => confirmed({ tier: ownTier(id) })}
          onClose={close}
        />
      )}
      {asking === "disable" && (
        <Confirm
          title={`Disable ${name}?`}
          consequence={`${active_keys === 0 ? "Every session" : `${plural(active_keys, "key")} and every session`} of theirs end now. The account and its history stay, and can be enabled again.`}
          confirm="Disable"
          onClose={close}
          onConfirm={() => confirmed({ disabled: true })}
        />
      )}
      {asking === "admin" && (
        <Confirm
          title={is_admin ? `Remove administrator rights of ${name}?` : `Make ${name} an administrator?`}
          consequence={
            is_admin
              ? "They can no longer manage backends, prices, people and nodes."
              : "They can manage backends, prices, people and nodes, and see everyone's usage."
          }
          confirm={is_admin ? "Remove rights" : "Make administrator"}
          onClose={close}
          onConfirm={() => confirmed({ is_admin: !is_admin })}
        />
      )}
      {asking === "address" && (
        <Confirm
          title={`Is ${email} the address of ${name}?`}
          consequence="Where accounts are linked by address, the person with this address at the sign-in provider then gets the account. Its password, sessions and keys end at that moment."
          confirm="Confirm address"
          onClose={close}
          onConfirm={() => confirmed({ email_verified: true })}
        />
      )}
      {asking === "reset" && (
        <Confirm
          title={`Reset the password of ${name}?`}
          consequence="The old password and every session end now. You get a link with which they choose a new one."
          confirm="Reset password"
          onClose={close}
          onConfirm={async () => {
            const made = await api("users.password.reset", { user_id: id });
            invalidate("links");
            onLink({ ...made, text: `Send this link to ${email}, who chooses a new password with it.` });
          }}
        />
      )}
    </>
  );
}

export const UserState = ({ user: { disabled } }: { user: User }) =>
  disabled ? <Status tone="warn">Disabled</Status> : <Status tone="good">Active</Status>;
