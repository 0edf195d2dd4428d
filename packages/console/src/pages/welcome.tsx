import { oneTimeLink } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { useAction } from "../lib/action.ts";
import { api } from "../lib/api.ts";
import { client, online } from "../lib/client.ts";
import { linkToken } from "../lib/link-token.ts";
import { useQuery } from "../lib/query.ts";
import { navigate, useSearch } from "../lib/router.ts";
import { loadSetup } from "../lib/setup.ts";
import { useStore } from "../lib/store.ts";
import { OfflineBanner } from "../shell/banner.tsx";
import { Button, TextField } from "../ui/controls.tsx";
import { Mark } from "../ui/icons.tsx";
import { FormError, Note, QueryFailure, When } from "../ui/states.tsx";
import { ProviderButton } from "./sign-in.tsx";

const PASSWORD_LENGTH_MIN = 8;

interface Asked {
  title: string;
  text: string;
  /** Null: the person with the link chooses. */
  email: string | null;
  /** The account is still to be made. */
  asksName: boolean;
  /** The person may have no account yet. */
  registers: boolean;
  expiresAt: string;
}

async function askedBy(kind: "link" | "group", token: string): Promise<Asked> {
  if (kind === "group") {
    const { group_name, invited_by, role, ...shown } = await api("group.invite.show", { token });
    return {
      title: `Join ${group_name}`,
      text: `${invited_by || "Someone"} invites you to the group ${group_name}${role === "admin" ? ", to manage it with them" : ""}.`,
      email: shown.email,
      asksName: true,
      registers: shown.registers,
      expiresAt: shown.expires_at,
    };
  }
  const { kind: use, invited_by, email, name, note, expires_at } = await api("auth.link.show", { token });
  return use === "password"
    ? {
        title: `Welcome, ${name}`,
        text: "Choose a password for your account.",
        email,
        asksName: false,
        registers: true,
        expiresAt: expires_at,
      }
    : {
        title: "You are invited",
        text: `${invited_by || "An administrator"} invites you to the model gateway at ${location.host}.${note ? ` “${note}”` : ""}`,
        email,
        asksName: true,
        registers: true,
        expiresAt: expires_at,
      };
}

/** The page behind an invitation: who invites to what, and an account in one form. */
export function Welcome({ kind, onSignIn }: { kind: "link" | "group"; onSignIn(): void }) {
  const [search] = useSearch();
  const token = linkToken(search);
  const asked = useQuery(`asked ${kind} ${token}`, () => askedBy(kind, token));
  const setup = useQuery("setup", loadSetup);
  const connected = useStore(online);
  return (
    <main className="center">
      {!connected && <OfflineBanner />}
      <div className="entrance stack">
        <div className="entrance-head">
          <Mark />
          <h1>{asked.data?.title ?? "Invitation"}</h1>
          {asked.data && (
            <p className="muted">
              {asked.data.text} The link ends <When time={asked.data.expiresAt} />.
            </p>
          )}
        </div>
        <QueryFailure query={asked} />
        {asked.data && setup.data?.provider && (
          // Someone who has an account joins the group after the sign-in, on the page that this one is then.
          <ProviderButton
            label={setup.data.provider}
            returnTo={kind === "group" ? oneTimeLink("", "join", token) : "/"}
            invitation={asked.data.asksName ? token : undefined}
          />
        )}
        {asked.data?.registers && setup.data?.password_sign_in && (
          <NewAccount kind={kind} token={token} asked={asked.data} />
        )}
        {asked.data?.registers === false && (
          <Note>
            This invitation is for people who have an account here. Sign in to join, or ask an administrator
            of the service for an invitation of your own.
          </Note>
        )}
        {setup.data?.password_sign_in && (
          <Button look="quiet" onClick={onSignIn}>
            I have an account: sign in
          </Button>
        )}
      </div>
    </main>
  );
}

function NewAccount({ kind, token, asked }: { kind: "link" | "group"; token: string; asked: Asked }) {
  const [name, setName] = useState("");
  const [email, setEmail] = useState(asked.email ?? "");
  const [password, setPassword] = useState("");
  const accept = useAction(async () => {
    const given = {
      token,
      password,
      ...(asked.asksName && email && { email }),
      ...(name.trim() && { name: name.trim() }),
    };
    const tokens = await (kind === "group"
      ? api("group.invite.register", given)
      : api("auth.link.accept", given));
    // Where a newcomer wants to be: at a model that answers.
    navigate("/playground", { replace: true });
    await client.accept(tokens);
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void accept.run();
  };
  return (
    <form className="form" onSubmit={submit}>
      {asked.asksName && (
        <TextField
          label="Name"
          value={name}
          onChange={setName}
          autoFocus
          autoComplete="name"
          maxLength={80}
          hint="Optional"
        />
      )}
      {asked.email === null ? (
        <TextField
          label="Email"
          type="email"
          value={email}
          onChange={setEmail}
          required
          autoComplete="username"
        />
      ) : (
        <p>
          Your account is <strong>{asked.email}</strong>.
        </p>
      )}
      <TextField
        label="Password"
        type="password"
        value={password}
        onChange={setPassword}
        required
        minLength={PASSWORD_LENGTH_MIN}
        maxLength={128}
        hint={`At least ${PASSWORD_LENGTH_MIN} characters`}
        autoComplete="new-password"
      />
      <FormError error={accept.error} />
      <Button type="submit" look="primary" busy={accept.busy}>
        {asked.asksName ? "Create account" : "Set password"}
      </Button>
    </form>
  );
}
