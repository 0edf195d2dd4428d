import { useEffect, useState } from "react";
import { client, session } from "../lib/client.ts";
import { navigate } from "../lib/router.ts";
import { toast } from "../lib/toast.ts";
import { Button } from "../ui/controls.tsx";
import { Mark } from "../ui/icons.tsx";
import { FormError } from "../ui/states.tsx";

/** A sign-in can be finished once, however often the page is drawn. */
let finishing: Promise<void> | null = null;

async function finish(): Promise<void> {
  const { returnTo, linked } = await client.finishSignIn(location.search.slice(1));
  if (linked) toast("Your account is linked to the sign-in provider");
  navigate(returnTo, { replace: true });
}

/** Where the sign-in provider sends the browser back to. */
export function SignedIn() {
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    finishing ??= finish();
    void finishing.catch(setError).finally(() => {
      finishing = null;
    });
  }, []);
  return (
    <main className="center">
      <div className="entrance stack">
        <div className="entrance-head">
          <Mark />
          <h1>{error === null ? "Signing in…" : "Sign-in failed"}</h1>
        </div>
        <FormError error={error} />
        {error !== null && (
          <Button look="primary" onClick={() => navigate("/", { replace: true })}>
            {session.get() ? "Back to the console" : "Back to sign in"}
          </Button>
        )}
      </div>
    </main>
  );
}
