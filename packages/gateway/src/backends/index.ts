import { isBridgeUrl, tunnelUrl } from "./bridge/index.ts";
import { createCloudRealtime } from "./cloud-realtime/index.ts";
import { createCloudVideo } from "./cloud-video/index.ts";
import type { Backend, BackendConfig, BackendDeps, BackendKind, BridgeResolver } from "./contract.ts";
import { create as createEngine } from "./engine/index.ts";
import { create as createExternal } from "./external/index.ts";
import { create as createLocalServer } from "./local-server/index.ts";
import { backendTypes, plan } from "./planner.ts";
import { answering } from "./shared/response-answer.ts";

type CreateBackend = (config: BackendConfig, deps: BackendDeps) => Backend;
/** For kinds that are typed by the global function; ours takes the same arguments. */
const globalFetch = ({ fetch }: BackendDeps) => fetch as typeof globalThis.fetch;

/** Every kind, one line each. `config.url` is where the backend is reached; bridges are resolved before. */
export const backendKinds: Readonly<Record<BackendKind, CreateBackend>> = {
  external: createExternal,
  "local-server": (config, deps) => answering(createLocalServer(config, deps)),
  engine: (config, deps) => answering(createEngine(config, deps)),
  "cloud-video": (config, deps) => createCloudVideo(config, { fetch: globalFetch(deps), clock: deps.clock }),
  "cloud-realtime": (config, deps) => createCloudRealtime(config, { fetch: globalFetch(deps) }),
};

/** What the routing room makes its backends with. */
export const backendFactory = (deps: BackendDeps, bridge: BridgeResolver) => ({
  plan,
  types: backendTypes,
  create: (config: BackendConfig): Backend => backendKinds[config.kind](config, deps),
  bridge,
  isBridgeUrl,
  tunnelUrl,
});
