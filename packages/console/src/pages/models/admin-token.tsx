import { createClient } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { setAdminToken } from "../../lib/client.ts";
import { Code } from "../../ui/code.tsx";
import { Button, TextField } from "../../ui/controls.tsx";
import { FormError } from "../../ui/states.tsx";

const TOKEN_BYTES = 24;
const newToken = () =>
  [...crypto.getRandomValues(new Uint8Array(TOKEN_BYTES))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");

/** The admin surface takes the operator's token and nothing else, so it is asked for here. */
export function AdminTokenForm() {
  const [token, setToken] = useState("");
  const [suggested] = useState(newToken);
  const enter = useAction(async () => {
    const given = token.trim();
    // Tried before it is kept: a wrong one must leave the form as it is.
    await createClient({ baseUrl: location.origin, adminToken: given }).admin.aliases();
    setAdminToken(given);
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void enter.run();
  };
  return (
    <form className="form narrow" onSubmit={submit}>
      <TextField
        label="Admin token"
        type="password"
        value={token}
        onChange={setToken}
        required
        autoComplete="off"
        hint="The value of SERVICE_ADMIN_TOKEN of the running service. It stays in this tab and is gone when the tab closes."
      />
      <FormError error={enter.error} />
      <div>
        <Button type="submit" look="primary" busy={enter.busy}>
          Unlock
        </Button>
      </div>
      <details className="folded">
        <summary>The service was started without one?</summary>
        <div className="stack tight">
          <p className="muted small">
            Then it refuses every token. Restart it with one; this one was generated just now in your browser:
          </p>
          <Code label="How to start it" text={`SERVICE_ADMIN_TOKEN=${suggested} npm start`} />
        </div>
      </details>
    </form>
  );
}
