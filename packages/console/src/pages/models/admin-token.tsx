import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { client, setAdminToken } from "../../lib/client.ts";
import { invalidate } from "../../lib/query.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { FormError } from "../../ui/states.tsx";

/** The admin surface takes the operator's token and nothing else, so it is asked for here. */
export function AdminTokenForm() {
  const [token, setToken] = useState("");
  const enter = useAction(async () => {
    setAdminToken(token.trim());
    try {
      await client.admin.aliases();
    } catch (error) {
      setAdminToken(null);
      throw error;
    }
    invalidate("backends");
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
