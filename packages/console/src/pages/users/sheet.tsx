import type { Params } from "@model-gateway/client";
import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { plural } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { loadSetup } from "../../lib/setup.ts";
import { useStore } from "../../lib/store.ts";
import { toast } from "../../lib/toast.ts";
import { Button, Copyable, SelectField } from "../../ui/controls.tsx";
import { Confirm, Dialog } from "../../ui/dialogs.tsx";
import { FormError, Note, When } from "../../ui/states.tsx";
import type { User } from "./page.tsx";

type Patch = Omit<Params<"users.update">, "user_id">;

export function UserSheet({
  user,
  onLink,
  onClose,
}: {
  user: User;
  onLink(link: { token: string; text: string }): void;
  onClose(): void;
}) {
  const isSelf = useStore(session)?.user.id === user.id;
  const plan = useQuery("plan", () => api("billing.plan"));
  const [asking, setAsking] = useState<"disable" | "reset" | "admin" | "address" | null>(null);
  const { id, name, email, email_verified, is_admin, disabled, active_keys } = user;
  const setup = useQuery("setup", loadSetup);
  // It matters only where accounts can be linked to a provider's.
  const isUnconfirmed = setup.data?.provider && !email_verified;
  const change = useAction(async (patch: Patch) => {
    await api("users.update", { user_id: id, ...patch });
    invalidate("users");
    toast(`${name} is changed`);
  });
  const confirmed = async (patch: Patch) => {
    await api("users.update", { user_id: id, ...patch });
    invalidate("users");
  };
  const close = () => setAsking(null);
  return (
    <Dialog title={name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>Email</dt>
          <dd>
            {email}
            {isUnconfirmed && <span className="muted"> (not confirmed)</span>}
          </dd>
          <dt>Rights</dt>
          <dd>{is_admin ? "administrator" : "user"}</dd>
          <dt>Keys</dt>
          <dd>{plural(active_keys, "active key")}</dd>
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
        <SelectField
          label="Tier"
          value={user.tier}
          onChange={(tier) => void change.run({ tier })}
          choices={(plan.data?.tiers ?? [{ name: user.tier }]).map((each) => ({
            value: each.name,
            label: each.name,
          }))}
        />
        <FormError error={change.error} />
        {isSelf ? (
          <Note>
            This is you. Your password is under Settings; another administrator changes your rights.
          </Note>
        ) : (
          <div className="row wrap">
            <Button onClick={() => setAsking("admin")}>
              {is_admin ? "Take administrator rights" : "Make administrator"}
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
          title={is_admin ? `Take administrator rights from ${name}?` : `Make ${name} an administrator?`}
          consequence={
            is_admin
              ? "They can no longer manage backends, prices, people and nodes."
              : "They can manage backends, prices, people and nodes, and see everyone's usage."
          }
          confirm={is_admin ? "Take rights" : "Make administrator"}
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
            const { token } = await api("users.password.reset", { user_id: id });
            invalidate("links");
            onClose();
            onLink({ token, text: `Send this link to ${email}, who chooses a new password with it.` });
          }}
        />
      )}
    </Dialog>
  );
}
