import {
  act,
  CliError,
  type Command,
  type Invocation,
  needed,
  refuseIdle,
  text,
  UsageError,
} from "../command.ts";
import { findGroup } from "./groups.ts";

interface KeyRow {
  id: string;
  name: string;
  key_prefix: string;
  project: string;
  active: boolean;
  created_at: string;
  expires_at: string | null;
  monthly_budget_usd: number | null;
  spent_month_usd: number;
}

/** Each limit's option, and how its text is read; `none` takes a limit away. */
const LIMITS = {
  expires: { field: "expires_at", read: timeOf },
  "monthly-budget": { field: "monthly_budget_usd", read: numberOf },
  "total-budget": { field: "total_budget_usd", read: numberOf },
  models: {
    field: "allowed_models",
    read: (_: string, value: string) => value.split(/[,\s]+/).filter(Boolean),
  },
  rpm: { field: "requests_per_minute", read: numberOf },
  tpm: { field: "tokens_per_minute", read: numberOf },
} as const;

function numberOf(name: string, value: string): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number))
    throw new UsageError(`--${name} must be a number, or none`);
  return number;
}

/** A day, or a whole RFC 3339 timestamp. */
function timeOf(name: string, value: string): string {
  const time = new Date(value);
  if (Number.isNaN(time.getTime()))
    throw new UsageError(`--${name} must be a date like 2030-01-31 or 2030-01-31T12:00:00Z, or none`);
  return time.toISOString();
}

function limitsOf(options: Invocation["options"]): Record<string, unknown> {
  const limits: Record<string, unknown> = {};
  for (const [name, { field, read }] of Object.entries(LIMITS)) {
    const value = text(options, name);
    if (value !== null) limits[field] = value === "none" ? null : read(name, value);
  }
  return limits;
}

const stateOf = ({ active, expires_at }: KeyRow): string =>
  !active ? "revoked" : expires_at !== null && Date.parse(expires_at) <= Date.now() ? "expired" : "active";

const spentOf = ({ spent_month_usd, monthly_budget_usd }: KeyRow): string =>
  `$${spent_month_usd.toFixed(2)}${monthly_budget_usd === null ? "" : ` of $${monthly_budget_usd.toFixed(2)}`}`;

export const keys: Command = {
  name: "keys",
  summary: "List, create, limit and revoke your API keys",
  fields: Object.fromEntries(Object.entries(LIMITS).map(([option, { field }]) => [field, option])),
  examples: [
    "model-gateway keys",
    "model-gateway keys create laptop --project work",
    "model-gateway keys create ci --monthly-budget 5 --models gpt-4o-mini --expires 2030-01-31",
    "model-gateway keys update ci --monthly-budget 10 --rpm none",
    "model-gateway keys revoke laptop",
  ],
  actions: ["list", "create", "update", "revoke"],
  options: {
    project: { type: "string", help: "label that usage can be looked at by" },
    group: { type: "string", help: "name or id of the group whose pool pays" },
    expires: { type: "string", help: "day or time from which the key is refused; none: never" },
    "monthly-budget": { type: "string", help: "USD that it may spend in a UTC month; none: no limit" },
    "total-budget": { type: "string", help: "USD that it may spend in all; none: no limit" },
    models: { type: "string", help: "models that it may call, separated by commas; none: all" },
    rpm: { type: "string", help: "requests a minute; none: no limit" },
    tpm: { type: "string", help: "tokens a minute; none: no limit" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const list = async () => {
      const rows = await client.call("keys.list");
      output.table(
        rows,
        {
          name: (row: KeyRow) => row.name,
          key: (row: KeyRow) => `service-${row.key_prefix}…`,
          project: (row: KeyRow) => row.project,
          state: stateOf,
          "this month": spentOf,
          created: (row: KeyRow) => row.created_at.slice(0, 10),
          id: (row: KeyRow) => row.id,
        },
        "No keys yet; make one: model-gateway keys create <name>",
      );
    };
    const create = async () => {
      const project = text(options, "project");
      const group = text(options, "group");
      const key = await client.call("keys.create", {
        name: needed(words, 1, "the name of the key"),
        ...(project && { project }),
        ...(group && { group_id: (await findGroup(client, group)).id }),
        ...limitsOf(options),
      });
      output.note("Shown once; keep it now:");
      output.result(key, () => key.key);
    };
    const wantedKey = async () => {
      const wanted = needed(words, 1, "the name or id of the key");
      const rows = await client.call("keys.list");
      const found = rows.filter(({ id, name, active }) => id === wanted || (name === wanted && active));
      if (found.length > 1) {
        const ids = found.map(({ id, key_prefix }) => `  ${id}  service-${key_prefix}…`).join("\n");
        throw new CliError(`${found.length} active keys are called ${wanted}; give the id of one:\n${ids}`);
      }
      if (!found[0]) throw new CliError(`no active key is called ${wanted}; model-gateway keys lists them`);
      return found[0];
    };
    const update = async () => {
      refuseIdle(options, ["project", "group"], "with update");
      const found = await wantedKey();
      const limits = limitsOf(options);
      if (Object.keys(limits).length === 0)
        throw new UsageError("say what to change, e.g. --monthly-budget 5, or --rpm none");
      const key = await client.call("keys.update", { key_id: found.id, ...limits });
      output.result(key, () => `The limits of ${found.name} hold from now on`);
    };
    const revoke = async () => {
      const found = await wantedKey();
      await client.call("keys.revoke", { key_id: found.id });
      output.result({ ok: true }, () => `${found.name} no longer works`);
    };
    await act(words, { list, create, update, revoke }, "list");
  },
};
