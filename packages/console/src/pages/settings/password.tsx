import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError } from "../../ui/states.tsx";

const LENGTH_MIN = 8;

export function Password() {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const change = useAction(async () => {
    await api("auth.password.set", { current_password: current, new_password: next });
    invalidate("sessions");
    toast("Password changed; your other sessions are signed out");
    setCurrent("");
    setNext("");
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void change.run();
  };
  return (
    <Section title="Password">
      <form className="form narrow" onSubmit={submit}>
        <div className="columns">
          <TextField
            label="Current password"
            type="password"
            value={current}
            onChange={setCurrent}
            required
            autoComplete="current-password"
          />
          <TextField
            label="New password"
            type="password"
            value={next}
            onChange={setNext}
            required
            minLength={LENGTH_MIN}
            maxLength={128}
            autoComplete="new-password"
            hint={`At least ${LENGTH_MIN} characters`}
          />
        </div>
        <FormError error={change.error} />
        <div>
          <Button type="submit" busy={change.busy}>
            Change password
          </Button>
        </div>
      </form>
    </Section>
  );
}
