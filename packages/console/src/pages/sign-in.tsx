import { type FormEvent, useState } from "react";
import { useAction } from "../lib/action.ts";
import { pathHere } from "../lib/base.ts";
import { client, expired, online } from "../lib/client.ts";
import { useQuery } from "../lib/query.ts";
import { loadSetup } from "../lib/setup.ts";
import { useStore } from "../lib/store.ts";
import { OfflineBanner } from "../shell/banner.tsx";
import { Button, Segments, TextField } from "../ui/controls.tsx";
import { Mark } from "../ui/icons.tsx";
import { FormError, Note, QueryFailure } from "../ui/states.tsx";

/** From the link that the start printed; after the # it reaches no log. */
const setupToken = new URLSearchParams(location.hash.slice(1)).get("setup");

const PASSWORD_LENGTH_MIN = 8;

/** Sign in, create an account where that is open, or set the service up when nobody has an account yet. */
export function SignIn() {
  const setup = useQuery("setup", loadSetup);
  const [mode, setMode] = useState<"in" | "up">("in");
  const hasExpired = useStore(expired);
  const connected = useStore(online);
  if (!setup.data && !setup.error) return <div className="center" />;
  const firstRun = setup.data?.first_run ?? false;
  const registering = firstRun || mode === "up";
  const byPassword = setup.data?.password_sign_in ?? true;
  return (
    <main className="center">
      {!connected && <OfflineBanner />}
      <div className="entrance stack">
        <div className="entrance-head">
          <Mark />
          <h1>{firstRun ? "Set up your gateway" : registering ? "Create an account" : "Sign in"}</h1>
          <p className="muted">
            {firstRun
              ? "The first account administers the service and is unlimited: it gets the enterprise tier. Everyone else starts on the free tier, until you change that under Users."
              : "Model gateway at "}
            {!firstRun && <strong>{location.host}</strong>}
          </p>
        </div>
        {hasExpired && <Note tone="warn">Your session has ended. Sign in again to return to this page.</Note>}
        <QueryFailure query={setup} />
        {firstRun && setup.data?.setup_link_needed && setupToken === null && (
          <Note tone="warn">
            This service can be reached from other machines, so its first account needs the setup link that
            the service printed when it started. Open that link.
          </Note>
        )}
        {setup.data?.provider && <ProviderButton label={setup.data.provider} />}
        {setup.data?.provider && byPassword && <p className="entrance-or muted">or with a password</p>}
        {!firstRun && byPassword && setup.data?.registration_open && (
          <Segments
            label="Sign in or create an account"
            value={mode}
            onChange={setMode}
            choices={[
              { value: "in", label: "Sign in" },
              { value: "up", label: "Create an account" },
            ]}
          />
        )}
        {byPassword && (
          <AccountForm
            key={String(registering)}
            registering={registering}
            submit={firstRun ? "Create the administrator" : registering ? "Create account" : "Sign in"}
          />
        )}
      </div>
    </main>
  );
}

/** Leaves for the provider; it sends the browser back to /signed-in, and from there to this page. */
export function ProviderButton({
  label,
  returnTo = pathHere() + location.search + location.hash,
  invitation,
}: {
  label: string;
  returnTo?: string;
  /** Lets someone in who has no account yet. */
  invitation?: string;
}) {
  const leave = useAction(async () => {
    location.assign(await client.beginSignIn({ returnTo, setupToken: setupToken ?? undefined, invitation }));
  });
  return (
    <>
      <Button look="primary" busy={leave.busy} onClick={() => void leave.run()}>
        {label}
      </Button>
      <FormError error={leave.error} />
    </>
  );
}

function AccountForm({ registering, submit }: { registering: boolean; submit: string }) {
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const action = useAction(() =>
    registering
      ? client.signUp({
          email,
          password,
          ...(name.trim() && { name: name.trim() }),
          ...(setupToken !== null && { setup_token: setupToken }),
        })
      : client.signIn({ email, password }),
  );
  const send = (event: FormEvent) => {
    event.preventDefault();
    void action.run();
  };
  return (
    <form className="form" onSubmit={send}>
      {registering && (
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
      <TextField
        label="Email"
        type="email"
        value={email}
        onChange={setEmail}
        required
        autoFocus={!registering}
        autoComplete="username"
      />
      <TextField
        label="Password"
        type="password"
        value={password}
        onChange={setPassword}
        required
        minLength={registering ? PASSWORD_LENGTH_MIN : 1}
        hint={registering ? `At least ${PASSWORD_LENGTH_MIN} characters` : undefined}
        autoComplete={registering ? "new-password" : "current-password"}
      />
      <FormError error={action.error} />
      <Button type="submit" look="primary" busy={action.busy}>
        {submit}
      </Button>
    </form>
  );
}
