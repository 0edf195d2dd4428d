import { useState } from "react";
import { api } from "../../lib/api.ts";
import { compact, count, money } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { Plan, VideoPrice } from "../../lib/records.ts";
import { toast } from "../../lib/toast.ts";
import { Button, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { VideoPriceForm, videoPriceInWords } from "./video-price.tsx";

const columns: Column<VideoPrice>[] = [
  {
    id: "model",
    label: "Model",
    sort: ({ model }) => model,
    cell: ({ model }) => <span className="mono">{model}</span>,
  },
  { id: "price", label: "Price", cell: videoPriceInWords },
  {
    id: "resolution",
    label: "Resolution factors",
    wide: true,
    cell: ({ resolution_coeff }) =>
      Object.entries(resolution_coeff)
        .map(([side, factor]) => `${side === "*" ? "others" : `${side}p`} × ${factor}`)
        .join(", "),
  },
  {
    id: "state",
    label: "State",
    cell: ({ enabled }) =>
      enabled ? <Status tone="good">Priced</Status> : <Status tone="plain">Off</Status>,
  },
];

export function Prices() {
  const pricing = useQuery("video pricing", () => api("billing.video.pricing.get"));
  const plan = useQuery("plan", () => api("billing.plan"));
  const [editing, setEditing] = useState<VideoPrice | "new" | null>(null);
  const [tier, setTier] = useState<TierRow | null>(null);
  return (
    <div className="stack loose">
      <Section
        title="Video prices"
        actions={
          <Button icon="plus" onClick={() => setEditing("new")}>
            Set a price
          </Button>
        }
      >
        <Loaded query={pricing}>
          {({ pricing: rows }) =>
            rows.length === 0 ? (
              <Empty icon="video" title="No video model has its own price">
                Until one is set, a second of video costs $0.005 at every resolution.
              </Empty>
            ) : (
              <Table
                label="Video prices"
                columns={columns}
                rows={rows}
                rowKey={({ model }) => model}
                onOpen={(row) => setEditing(row)}
              />
            )
          }
        </Loaded>
      </Section>
      <Section title="Tiers">
        <Loaded query={plan}>
          {({ tiers }) => (
            <Table
              label="Tiers"
              columns={tierColumns}
              rows={tiers}
              rowKey={({ name }) => name}
              onOpen={(row) => setTier(row)}
            />
          )}
        </Loaded>
      </Section>
      {tier && <EditTier tier={tier} onClose={() => setTier(null)} />}
      {editing !== null && (
        <VideoPriceForm price={editing === "new" ? null : editing} onClose={() => setEditing(null)} />
      )}
    </div>
  );
}

type TierRow = Plan["tiers"][number];
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
  { id: "rpm", label: "Requests per minute, per key", numeric: true, cell: ({ rpm }) => count(rpm) },
];

function EditTier({ tier, onClose }: { tier: TierRow; onClose(): void }) {
  const [usd, setUsd] = useState(String(tier.monthly_usd_quota ?? ""));
  const [tokens, setTokens] = useState(String(tier.monthly_token_quota ?? ""));
  const [rpm, setRpm] = useState(String(tier.rpm));
  const quotaOf = (text: string) => (text.trim() === "" ? null : Number(text));
  const save = async () => {
    await api("billing.tiers.set", {
      name: tier.name,
      monthly_usd_quota: quotaOf(usd),
      monthly_token_quota: quotaOf(tokens),
      rpm: Number(rpm),
    });
    invalidate("plan");
    toast(`The limits of ${tier.name} are changed`);
  };
  return (
    <FormDialog title={`Limits of ${tier.name}`} submit="Save" onSubmit={save} onClose={onClose}>
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
