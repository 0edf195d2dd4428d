import { keepSecret } from "../kernel/secrets.ts";
import { isBridgeUrl } from "./bridge/index.ts";
import type {
  Backend,
  BackendConfig,
  BackendDeps,
  BackendKind,
  BridgeResolver,
  LocalServer,
} from "./contract.ts";
import { dialectsOf } from "./dialects/index.ts";
import * as kinds from "./kinds.ts";
import { keysIn } from "./shared/keys.ts";

export const backendKinds: ReadonlyMap<string, BackendKind> = new Map(
  Object.values(kinds).map((kind) => [kind.kind, kind]),
);

/** Well-known servers on this machine: the only addresses that are tried without being registered. */
export const localServers: readonly LocalServer[] = Object.values(kinds).flatMap(({ kind, types }) =>
  types.flatMap(({ name: type, local }) => (local ? [{ ...local, type, kind }] : [])),
);

function keepSecretsOf({ apiKey, url, headers }: BackendConfig): () => void {
  const password = URL.canParse(url) ? decodeURIComponent(new URL(url).password) : "";
  const secrets = [...keysIn(apiKey), ...Object.values(headers ?? {}), password];
  const ends = secrets.filter((each) => !each.trimStart().startsWith("{")).map((each) => keepSecret(each));
  return () => {
    for (const end of ends.splice(0)) end();
  };
}

/** The operator's settings take precedence over what was found out. The host's usual dialect comes first. */
function withSeen({ seen, ...config }: BackendConfig): BackendConfig {
  if (!seen || seen.dialects.length === 0) return config;
  const { auth, limit_field, id_prefix } = seen;
  const known = dialectsOf({ url: config.url }).filter((name) => seen.dialects.includes(name));
  const dialects = [...new Set([...known, ...seen.dialects])];
  return {
    ...(auth && { auth }),
    ...(limit_field && { limit_field }),
    ...(id_prefix && { id_prefix }),
    dialects,
    ...config,
  };
}

/** How the routing room creates its backends. */
export const backendFactory = (deps: BackendDeps, bridge: BridgeResolver) => ({
  plan,
  kinds: backendKinds,
  create(config: BackendConfig): Backend {
    const kind = backendKinds.get(config.kind);
    if (!kind) throw new Error(`There is no backend kind ${config.kind}`);
    const forgetSecrets = keepSecretsOf(config);
    const spoken = withSeen(config);
    const backend = kind.create(spoken, deps);
    const close = backend.close.bind(backend);
    return Object.assign(backend, {
      config,
      limitFields: kind.limitFields?.(spoken),
      close() {
        close();
        forgetSecrets();
      },
    });
  },
  bridge,
  isBridgeUrl,
});

type Plan =
  | { kind: string; dialect?: string }
  /** For a removed type: what to use instead. */
  | { removed: string };

const PLANS = new Map<string, Plan>([
  ...Object.values(kinds).flatMap(({ kind, types }): [string, Plan][] => [
    [kind, { kind }],
    ...types.map(({ name, dialect }): [string, Plan] => [name, { kind, ...(dialect && { dialect }) }]),
  ]),
  [
    "comfyui",
    {
      removed:
        "The comfyui backend was removed: register a cloud-video backend, or an engine that declares the video capability",
    },
  ],
]);

/** `type` is the name of a kind or of a server; null: neither. */
export function plan(type: string): Plan | null {
  return PLANS.get(type.trim().toLowerCase()) ?? null;
}
