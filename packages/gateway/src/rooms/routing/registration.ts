import type {
  Backend,
  BackendConfig,
  BackendKind,
  BackendSettings,
  BridgeResolver,
} from "../../backends/contract.ts";
import { fail, failParam } from "../../kernel/errors.ts";
import { plainId } from "./aliases.ts";
import { type StoredBackend, settingsOf } from "./store.ts";

const DEFAULT_TYPE = "local-server";
const DEFAULT_URL = "http://localhost:11434";

/** Creates backends. Passed in, because rooms do not import the kinds of backends. */
export interface BackendFactory {
  plan(type: string): { kind: string; dialect?: string } | { removed: string } | null;
  kinds: ReadonlyMap<string, BackendKind>;
  create(config: BackendConfig): Backend;
  bridge: BridgeResolver;
  isBridgeUrl(url: string): boolean;
}

type NullableName = keyof BackendSettings | "apiKey" | "dialects" | "seen";

/** Null: no longer set. */
export type Registration = Partial<Omit<StoredBackend, NullableName>> & {
  [Name in NullableName]?: StoredBackend[Name] | null;
};

/** The choices of a registration form: every kind, and the types that have their own label. */
export function registrationForm({ kinds }: BackendFactory) {
  const types = [...kinds.values()].flatMap(({ kind, label, types, fields }) => {
    const shown = fields.map(({ isMore = false, choices, ...field }) => ({
      ...field,
      is_more: isMore,
      ...(choices && { choices: [...choices] }),
    }));
    return [{ name: kind, label }, ...types].flatMap((each) =>
      each.label ? { type: each.name, kind, label: each.label, fields: shown } : [],
    );
  });
  return { default_type: DEFAULT_TYPE, types };
}

export function complete({
  type = DEFAULT_TYPE,
  url = DEFAULT_URL,
  name,
  ...rest
}: Registration): StoredBackend {
  return {
    name: name ?? type,
    type,
    url,
    apiKey: rest.apiKey || null,
    models: [...new Set(rest.models ?? [])],
    ...(rest.capabilities && { capabilities: rest.capabilities }),
    ...(rest.dialects && { dialects: rest.dialects }),
    ...(rest.concurrency && { concurrency: rest.concurrency }),
    ...settingsOf(rest),
    ...(rest.seen && { seen: rest.seen }),
    workflow: rest.workflow ?? null,
    enabled: rest.enabled ?? true,
  };
}

/** Refuses what the kind of backend does not take. */
export function configOf(factory: BackendFactory, { workflow: _, ...stored }: StoredBackend): BackendConfig {
  const plan = factory.plan(stored.type);
  if (!plan) {
    const types = [...factory.kinds.values()].flatMap((each) => [
      each.kind,
      ...each.types.map(({ name }) => name),
    ]);
    fail("unknown_type", `Unknown backend type: ${stored.type}; it is one of ${types.join(", ")}`);
  }
  if ("removed" in plan) fail("unknown_type", plan.removed);
  const kind = factory.kinds.get(plan.kind)!;
  const models = kind.takesSettings ? [...new Set(stored.models.map(plainId))] : stored.models;
  const config = { ...stored, ...plan, models };
  if (!factory.isBridgeUrl(config.url)) requireUrl(kind, config.url);
  const setting = Object.keys(settingsOf(config)).find((name) => name !== "fields");
  const problem = `a backend of type ${kind.kind} does not have it; leave it out`;
  if (setting && !kind.takesSettings) failParam(setting, problem, "missing_fields");
  return config;
}

/** What is left out stays. A secret is not sent to another server. */
export function changed(stored: StoredBackend, patch: Registration): Registration {
  const moves = patch.url !== undefined && originOf(patch.url) !== originOf(stored.url);
  const keepsKey = stored.apiKey !== null && patch.apiKey === undefined;
  const secret = keepsKey ? "api_key" : stored.headers && patch.headers === undefined ? "headers" : null;
  if (moves && secret)
    failParam(secret, "is needed again, because the address is another server's", "missing_fields");
  const given = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
  return { ...stored, ...(patch.url !== undefined && patch.url !== stored.url && { seen: null }), ...given };
}

/** Includes the scheme, so that a key for TLS is never sent unencrypted. */
const originOf = (url: string): string => (URL.canParse(url) ? new URL("/", url).href : url);

function requireUrl({ kind, schemes }: BackendKind, url: string): void {
  const blank = /\{\w+\}/.exec(url)?.[0];
  if (blank) failParam("url", `put your own in the place of ${blank}`, "missing_fields");
  if (URL.canParse(url) && schemes.includes(new URL(url).protocol)) return;
  const wanted = [...schemes.map((scheme) => `${scheme}//`), "bridge://"].join(", ");
  fail(
    "missing_fields",
    `\`url\` must be an absolute URL beginning with one of ${wanted} for a backend of type ${kind}`,
  );
}
