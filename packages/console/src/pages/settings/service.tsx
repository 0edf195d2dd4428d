import type { Result } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { problemOf } from "../../lib/field-problems.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Told } from "../../lib/told.ts";
import type { Choice } from "../../ui/combobox.tsx";
import { Button, SelectField, TextField } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError, Loaded, Note } from "../../ui/states.tsx";

type Setting = Result<"settings.list">[number];

/** A setting as people read it; without choices it is a number. Empty means its default. */
const WORDS: Record<string, { label: string; choices?: Choice[]; risk?: string }> = {
  SERVICE_REGISTRATION_OPEN: {
    label: "Who may register",
    choices: [
      { value: "", label: "Invited people only" },
      { value: "true", label: "Anyone who can open this page" },
    ],
    risk: "Everyone who can reach the service can make an account",
  },
  SERVICE_MEMBER_INVITATIONS_REGISTER: {
    label: "Who may invite new people",
    choices: [
      { value: "", label: "Administrators only" },
      { value: "true", label: "Also admins of groups, into their group" },
    ],
  },
  SERVICE_NEW_ACCOUNT_TIER: { label: "Tier of new people", choices: [] },
  SERVICE_INVITATION_DAYS: { label: "Invitations can be used for, days" },
  SERVICE_API_RATE_LIMIT_RPM: { label: "Requests per minute, per key" },
  SERVICE_USAGE_RETENTION_MONTHS: { label: "Keep usage for, months" },
  SERVICE_REQUEST_RECORDS_DAYS: { label: "List requests for, days" },
  SERVICE_AUDIT_RETENTION_DAYS: { label: "Keep the audit log for, days" },
};

/** What is chosen in the form; empty: the default. */
const chosenOf = ({ source, value }: Setting) => (source === null || value === "false" ? "" : (value ?? ""));

export function ServiceSettings() {
  const settings = useQuery("settings", () => api("settings.list"));
  return (
    <>
      <Section title="Service">
        <Loaded query={settings}>{(list) => <Form settings={list} />}</Loaded>
      </Section>
      <Alerts />
    </>
  );
}

function Form({ settings }: { settings: readonly Setting[] }) {
  const [edited, setEdited] = useState<Record<string, string>>({});
  const tiers = useQuery("plan", () => api("billing.plan")).data?.tiers ?? [];
  const changed = settings.filter((each) => (edited[each.name] ?? chosenOf(each)) !== chosenOf(each));
  const save = useAction(async () => {
    for (const { name } of changed)
      await api("settings.update", { name, value: edited[name] || null }).catch((error: unknown) => {
        const problem = problemOf(error, "value");
        throw problem === null ? error : new Told(WORDS[name]?.label ?? name, problem);
      });
    for (const key of ["settings", "setup"]) invalidate(key);
    setEdited({});
    toast("Saved; in force now");
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void save.run();
  };
  const field = (setting: Setting) => {
    const { name, source, value } = setting;
    const { label, choices, risk } = WORDS[name] ?? { label: name };
    const chosen = edited[name] ?? chosenOf(setting);
    const isFixed = source === "environment";
    const common = {
      label,
      value: chosen,
      onChange: (text: string) => setEdited({ ...edited, [name]: text }),
      disabled: isFixed,
      hint: isFixed ? (
        `Set by ${name} in the environment of the service`
      ) : risk && chosen === "true" ? (
        <span className="warn">{risk}</span>
      ) : undefined,
    };
    if (!choices)
      return (
        <TextField
          key={name}
          {...common}
          type="number"
          min={0}
          placeholder={`${setting.default} (default)`}
        />
      );
    const named = tiers.map((tier) => ({ value: tier.name, label: tier.name }));
    const ofTier = [{ value: "", label: `${setting.default} (default)` }, ...named];
    const all = choices.length > 0 ? choices : ofTier;
    const known = all.some((choice) => choice.value === common.value);
    return (
      <SelectField
        key={name}
        {...common}
        choices={known ? all : [...all, { value: common.value, label: value ?? "" }]}
      />
    );
  };
  return (
    <form className="form narrow" onSubmit={submit}>
      {settings.map(field)}
      <FormError error={save.error} />
      <div>
        <Button type="submit" look="primary" busy={save.busy} disabled={changed.length === 0}>
          Save
        </Button>
      </div>
    </form>
  );
}

function Alerts() {
  const [answers, setAnswers] = useState<Result<"alerts.test">>([]);
  const test = useAction(async () => setAnswers(await api("alerts.test")));
  return (
    <Section title="Alerts">
      <div className="stack">
        <p className="muted">
          Tells people by mail or webhook when a backend is down or a budget runs out.{" "}
          <Link href="/docs/alerts">How to set it up</Link>
        </p>
        <div>
          <Button busy={test.busy} onClick={() => void test.run()}>
            Send a test alert
          </Button>
        </div>
        <FormError error={test.error} />
        {answers.map(({ to, ok, detail }) => (
          <Note key={to} tone={ok ? "good" : "warn"}>
            {ok ? `Sent by ${to}.` : `Not sent by ${to}: ${detail}`}
          </Note>
        ))}
      </div>
    </Section>
  );
}
