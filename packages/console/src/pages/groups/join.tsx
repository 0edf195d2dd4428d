import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { linkToken } from "../../lib/link-token.ts";
import { invalidate } from "../../lib/query.ts";
import { navigate, useSearch } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { PageHead } from "../../ui/page.tsx";
import { FormError } from "../../ui/states.tsx";

export function Page() {
  const [search] = useSearch();
  const [token, setToken] = useState(linkToken(search));
  const join = useAction(async () => {
    const group = await api("group.invite.accept", { token: token.trim() });
    invalidate("groups");
    toast(`You joined ${group.name}`);
    navigate(`/groups/${group.id}`);
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void join.run();
  };
  return (
    <>
      <PageHead title="Join a group">Use the invitation that a group admin sent you.</PageHead>
      <form className="form narrow" onSubmit={submit}>
        <TextField label="Invitation" value={token} onChange={setToken} required autoComplete="off" />
        <FormError error={join.error} />
        <div>
          <Button type="submit" look="primary" busy={join.busy}>
            Join
          </Button>
        </div>
      </form>
    </>
  );
}
