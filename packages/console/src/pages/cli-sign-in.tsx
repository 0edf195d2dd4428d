import { cliConfirmation, readCliSignIn } from "@model-gateway/client";
import { useAction } from "../lib/action.ts";
import { api } from "../lib/api.ts";
import { session } from "../lib/client.ts";
import { useSearch } from "../lib/router.ts";
import { useStore } from "../lib/store.ts";
import { Button } from "../ui/controls.tsx";
import { PageHead } from "../ui/page.tsx";
import { FormError, Note } from "../ui/states.tsx";

/** Lets `model-gateway login` sign in as the person who is signed in here. */
export function Page() {
  const [search] = useSearch();
  const asked = readCliSignIn(search);
  const user = useStore(session)?.user;
  /** Back to the command line, which waits on this computer. */
  const answer = (fields: Record<string, string>) =>
    location.replace(
      `http://127.0.0.1:${asked!.port}/?${new URLSearchParams({ ...fields, state: asked!.state })}`,
    );
  const approve = useAction(async () => {
    const { code } = await api("auth.cli.approve", { challenge: asked!.challenge });
    answer({ code });
  });
  return (
    <>
      <PageHead title="Sign in the command line">
        A program on this computer asks to act as <strong>{user?.email}</strong>.
      </PageHead>
      {asked ? (
        <div className="form narrow">
          <p>Your terminal shows this code:</p>
          <p>
            <code>{cliConfirmation(asked.challenge)}</code>
          </p>
          <Note tone="warn">
            Continue only if you have just run <code>model-gateway login</code> and the codes are the same.
          </Note>
          <FormError error={approve.error} />
          <div className="row">
            <Button look="primary" busy={approve.busy} onClick={() => void approve.run()}>
              Sign in
            </Button>
            <Button onClick={() => answer({ error: "cancelled" })}>Cancel</Button>
          </div>
        </div>
      ) : (
        <Note tone="bad">
          This address is incomplete. Run <code>model-gateway login --browser</code> again and open the
          address that it prints.
        </Note>
      )}
    </>
  );
}
