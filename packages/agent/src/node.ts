/** The node program's parts, wired together. */
import { join } from "node:path";
import {
  type EstimateParams,
  type HeartbeatParams,
  type LogParams,
  PROTOCOL_VERSION,
  type StopParams,
} from "@model-gateway/protocol/agent.ts";
import manifest from "../package.json" with { type: "json" };
import type { AgentSettings } from "./args.ts";
import { GpuMonitor } from "./gpu.ts";
import { GatewayLink } from "./link.ts";
import type { Log } from "./log.ts";
import { secretsIn } from "./secrets.ts";
import { Deployments } from "./supervise/deployments.ts";
import { StateFile } from "./supervise/state-file.ts";
import { WeightsStore } from "./weights/store.ts";

export interface AgentNode {
  /** Ends with the program: the promise of `run` settles after `stop`. */
  run(): Promise<void>;
  stop(): Promise<void>;
}

export function createNode(settings: AgentSettings, log: Log): AgentNode {
  const { config, dataDir, bind, host, direct } = settings;
  const state = new StateFile(dataDir);
  const gpus = new GpuMonitor({ log });
  const token = process.env[config.mirror_token_env] ?? null;
  const weights = new WeightsStore({
    dir: join(dataDir, "weights"),
    access: { mirror: config.mirror, token },
  });
  const deployments = new Deployments({
    context: {
      ...{ config, dataDir, bind, weights, gpus, log },
      secrets: [settings.token, token ?? "", ...secretsIn(process.env)],
    },
    state,
    advertisedHost: direct ? host : null,
    onProgress: (progress) => link.progress(progress),
    openStreamsOf: (modelId) => link.openStreamsOf(modelId),
  });
  const report = async (): Promise<HeartbeatParams> => {
    const [found, memory] = await Promise.all([gpus.read(), gpus.memoryByProcess()]);
    return { gpus: found, models: deployments.serving(memory), pending: deployments.pending() };
  };
  const link: GatewayLink = new GatewayLink({
    url: settings.url,
    token: settings.token,
    log,
    hello: async () => ({
      version: manifest.version,
      host,
      name: settings.name,
      protocol: PROTOCOL_VERSION,
      direct,
      tunnel: true,
      ...(config.requests_max && { streams_max: config.requests_max }),
      ...(await report()),
    }),
    heartbeat: report,
    handlers: {
      "agent.deploy": (params) => deployments.deploy(params),
      "agent.stop": (params: StopParams) => void deployments.stop(params),
      "agent.estimate": (params: EstimateParams) => deployments.estimate(params),
      "agent.log": (params: LogParams) => deployments.log(params),
      "agent.history": () => gpus.history(),
    },
    target: (modelId) => deployments.target(modelId),
  });
  return {
    run: async () => {
      await deployments.restore();
      await link.run();
    },
    stop: async () => {
      await link.drain(config.drain_s * 1000);
      await deployments.shutDown();
      link.stop();
    },
  };
}
