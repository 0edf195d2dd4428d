import { createClient } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { setAdminToken } from "../../lib/client.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { FormError } from "../../ui/states.tsx";

/** The admin surface takes the operator's token and nothing else, so it is asked for here. */
export function AdminTokenForm() {
  const [token, setToken] = useState("");
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
    </form>
  );
}
