import type { Result } from "@model-gateway/client";
import { compact, money, plural } from "../../lib/format.ts";
import { useUnknownModels } from "../../lib/models.ts";
import { TextField } from "../../ui/controls.tsx";
import { Note, When } from "../../ui/states.tsx";

export type Key = Result<"keys.list">[number];

/** The limits of a key as they stand in the fields of a form: empty is no limit. */
export interface LimitFields {
  expires: string;
  monthly: string;
  total: string;
  models: string;
  requests: string;
  tokens: string;
}

export const NO_LIMITS: LimitFields = {
  expires: "",
  monthly: "",
  total: "",
  models: "",
  requests: "",
  tokens: "",
};

/** As `datetime-local` wants it: the reader's own time, without a zone. */
function localTime(time: string): string {
  const date = new Date(time);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export const fieldsOf = (key: Key): LimitFields => ({
  expires: key.expires_at ? localTime(key.expires_at) : "",
  monthly: key.monthly_budget_usd === null ? "" : String(key.monthly_budget_usd),
  total: key.total_budget_usd === null ? "" : String(key.total_budget_usd),
  models: key.allowed_models?.join(", ") ?? "",
  requests: key.requests_per_minute === null ? "" : String(key.requests_per_minute),
  tokens: key.tokens_per_minute === null ? "" : String(key.tokens_per_minute),
});

const numberOrNull = (text: string): number | null => (text.trim() === "" ? null : Number(text));

const modelsIn = (text: string) => text.split(/[,\s]+/).filter(Boolean);

/** What the service is asked to set; null takes a limit away. */
export function limitParams(fields: LimitFields) {
  const models = modelsIn(fields.models);
  return {
    expires_at: fields.expires ? new Date(fields.expires).toISOString() : null,
    monthly_budget_usd: numberOrNull(fields.monthly),
    total_budget_usd: numberOrNull(fields.total),
    allowed_models: models.length > 0 ? models : null,
    requests_per_minute: numberOrNull(fields.requests),
    tokens_per_minute: numberOrNull(fields.tokens),
  };
}

export function LimitsForm({
  fields,
  onChange,
}: {
  fields: LimitFields;
  onChange(fields: LimitFields): void;
}) {
  const set = (name: keyof LimitFields) => (value: string) => onChange({ ...fields, [name]: value });
  const unknown = useUnknownModels(modelsIn(fields.models));
  const usd = { type: "number", min: 0, max: 1_000_000, step: "any", placeholder: "no limit" } as const;
  const whole = { type: "number", min: 1, step: 1, placeholder: "no limit" } as const;
  return (
    <>
      <div className="columns">
        <TextField
          label="Monthly budget (USD)"
          value={fields.monthly}
          onChange={set("monthly")}
          {...usd}
          hint="Starts again with each UTC month"
        />
        <TextField
          label="Total budget (USD)"
          value={fields.total}
          onChange={set("total")}
          {...usd}
          hint="Lifetime of the key"
        />
      </div>
      <div className="columns">
        <TextField
          label="Requests a minute"
          value={fields.requests}
          onChange={set("requests")}
          {...whole}
          max={100_000}
        />
        <TextField
          label="Tokens a minute"
          value={fields.tokens}
          onChange={set("tokens")}
          {...whole}
          max={1_000_000_000}
        />
      </div>
      <TextField
        label="Allowed models"
        value={fields.models}
        onChange={set("models")}
        placeholder="all models"
        hint={
          unknown.length > 0 ? (
            <span className="warn">No backend lists {unknown.join(", ")}</span>
          ) : (
            "Separated by commas. Model routes count as the models that they lead to"
          )
        }
      />
      <TextField
        label="Expires"
        type="datetime-local"
        value={fields.expires}
        onChange={set("expires")}
        hint="Your local time; empty for never"
      />
    </>
  );
}

export const isExpired = ({ expires_at }: Key, nowMs = Date.now()): boolean =>
  expires_at !== null && Date.parse(expires_at) <= nowMs;

/** `$1.20 of $5.00`. */
export const spentOf = (spentUsd: number, budgetUsd: number | null): string =>
  budgetUsd === null ? money(spentUsd) : `${money(spentUsd)} of ${money(budgetUsd)}`;

const share = (spentUsd: number, budgetUsd: number | null): number =>
  budgetUsd === null ? 0 : budgetUsd === 0 ? 1 : spentUsd / budgetUsd;
/** How much of its budgets the key has spent: 1 is all of one of them. */
export const budgetShare = (key: Key): number =>
  Math.max(
    share(key.spent_month_usd, key.monthly_budget_usd),
    share(key.spent_total_usd, key.total_budget_usd),
  );

/** The limits of a key and what became of it, as rows of a list of facts. */
export function LimitFacts({ value }: { value: Key }) {
  const paces = [
    value.requests_per_minute !== null && plural(value.requests_per_minute, "request"),
    value.tokens_per_minute !== null && `${compact(value.tokens_per_minute)} tokens`,
  ].filter(Boolean);
  return (
    <>
      <dt>This month</dt>
      <dd>{spentOf(value.spent_month_usd, value.monthly_budget_usd)}</dd>
      <dt>In all</dt>
      <dd>{spentOf(value.spent_total_usd, value.total_budget_usd)}</dd>
      <dt>A minute</dt>
      <dd>{paces.length > 0 ? paces.join(", ") : "as the tier allows"}</dd>
      <dt>Models</dt>
      <dd>{value.allowed_models?.join(", ") ?? "all"}</dd>
      <dt>Expires</dt>
      <dd>{value.expires_at ? <When time={value.expires_at} /> : "never"}</dd>
      <dt>Last used</dt>
      <dd>
        <When time={value.last_used_at} />
      </dd>
    </>
  );
}

export function LastRefusal({ value: { last_refusal } }: { value: Key }) {
  if (!last_refusal) return null;
  return (
    <Note tone="warn">
      <strong>
        Last refused <When time={last_refusal.at} />
      </strong>{" "}
      <span className="muted">{last_refusal.message}</span>
    </Note>
  );
}
