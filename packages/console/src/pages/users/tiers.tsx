import { useState } from "react";
import { api } from "../../lib/api.ts";
import { compact, count, money } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { Plan } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

export type TierRow = Plan["tiers"][number];
const tierColumns: Column<TierRow>[] = [
  { id: "name", label: "Tier", cell: ({ name }) => <strong>{name}</strong> },
  {
    id: "usd",
    label: "A month",
    numeric: true,
    cell: ({ monthly_usd_quota }) => (monthly_usd_quota === null ? "unlimited" : money(monthly_usd_quota)),
  },
  {
    id: "tokens",
    label: "Tokens a month",
    numeric: true,
    cell: ({ monthly_token_quota }) =>
      monthly_token_quota === null ? "unlimited" : compact(monthly_token_quota),
  },
  {
    id: "rpm",
    label: "Requests per minute, per key",
    numeric: true,
    wide: true,
    cell: ({ rpm }) => count(rpm),
  },
];

const NEW: TierRow = { name: "", monthly_usd_quota: null, monthly_token_quota: null, rpm: 60 };

export function EditTier({
  tier,
  title,
  onSaved,
  onClose,
}: {
  tier: TierRow;
  title: string;
  onSaved?(): Promise<unknown>;
  onClose(): void;
}) {
  const [name, setName] = useState(tier.name);
  const [usd, setUsd] = useState(String(tier.monthly_usd_quota ?? ""));
  const [tokens, setTokens] = useState(String(tier.monthly_token_quota ?? ""));
  const [rpm, setRpm] = useState(String(tier.rpm));
  const quotaOf = (text: string) => (text.trim() === "" ? null : Number(text));
  const save = async () => {
    await api("billing.tiers.set", {
      name: name.trim(),
      monthly_usd_quota: quotaOf(usd),
      monthly_token_quota: quotaOf(tokens),
      rpm: Number(rpm),
    });
    await onSaved?.();
    invalidate("plan");
    toast("The limits are in force");
  };
  return (
    <FormDialog title={title} submit="Save" onSubmit={save} onClose={onClose}>
      {tier.name === "" && <TextField label="Name" value={name} onChange={setName} required maxLength={64} />}
      <TextField
        label="USD a month"
        type="number"
        min={0}
        step="any"
        value={usd}
        onChange={setUsd}
        hint="Empty: unlimited"
      />
      <TextField
        label="Tokens a month"
        type="number"
        min={0}
        value={tokens}
        onChange={setTokens}
        hint="Empty: unlimited"
      />
      <TextField
        label="Requests per minute, per key"
        type="number"
        min={1}
        value={rpm}
        onChange={setRpm}
        required
      />
    </FormDialog>
  );
}

/** Limits of one person alone are a tier that only they are in. */
export const ownTier = (userId: string): string => `own-${userId.slice(0, 8)}`;
export const isOwnTier = (name: string): boolean => name.startsWith("own-");

export function limitsInWords({ monthly_usd_quota: usd, monthly_token_quota: tokens, rpm }: TierRow): string {
  const month = [usd !== null && money(usd), tokens !== null && `${compact(tokens)} tokens`].filter(Boolean);
  return `${month.length > 0 ? `${month.join(" and ")} a month` : "Unlimited"}, ${count(rpm)} requests per minute and key`;
}

export function Tiers() {
  const plan = useQuery("plan", () => api("billing.plan"));
  const [tier, setTier] = useState<TierRow | null>(null);
  return (
    <Section
      title="Tiers"
      actions={
        <Button icon="plus" onClick={() => setTier(NEW)}>
          Add tier
        </Button>
      }
    >
      <Loaded query={plan}>
        {({ tiers }) => (
          <Table
            label="Tiers"
            columns={tierColumns}
            rows={tiers.filter(({ name }) => !isOwnTier(name))}
            rowKey={({ name }) => name}
            onOpen={(row) => setTier(row)}
          />
        )}
      </Loaded>
      {tier && (
        <EditTier
          tier={tier}
          title={tier === NEW ? "Add a tier" : `Limits of ${tier.name}`}
          onClose={() => setTier(null)}
        />
      )}
    </Section>
  );
}
