import { urlHost } from "@model-gateway/protocol/host.ts";
import type { TunnelFetchInit } from "@model-gateway/protocol/tunnel/client.ts";
import { TunnelError } from "@model-gateway/protocol/tunnel/frames.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type ModelCall,
  type ModelPool,
  type ProbeResult,
  type Replica,
  type TunnelFetch,
} from "../contract.ts";
import { external } from "../external/index.ts";
import { whenAnswerEnds } from "./answer-end.ts";

/** A node that does not answer on its host and port within this time is reached through its tunnel. */
const REACH_TIMEOUT_MS = 2_000;

interface Member {
  via: "direct" | "tunnel";
  /** In the order in which they are tried. */
  ways: Backend[];
  inFlight: number;
}

/**
 * The backend `agent-<model_id>`: every node that serves the model, behind one name. A request goes to the
 * node with the fewest of them under way, and to the next one when that cannot be reached.
 */
export class AgentPool implements ModelPool {
  readonly backend: Backend;
  readonly #members = new Map<string, Member>();
  /** The newest replica of each node; a slower decision about an older one is dropped. */
  readonly #wanted = new Map<string, Replica>();

  constructor(readonly options: { modelId: string; deps: BackendDeps }) {
    this.backend = {
      config: this.#config("agent://nodes", null),
      chat: (call) => this.#spread(call, (way) => way.chat!(call)),
      embed: (call) => this.#spread(call, (way) => way.embed!(call)),
      post: (path, call) => this.#spread(call, (way) => way.post!(path, call)),
      probe: (signal) => this.#probe(signal),
      close() {},
    };
  }

  get size(): number {
    return this.#members.size;
  }

  via(agentId: string): "direct" | "tunnel" | null {
    return this.#members.get(agentId)?.via ?? null;
  }

  async set(replica: Replica): Promise<void> {
    const { agentId, tunnel } = replica;
    this.#wanted.set(agentId, replica);
    this.#members.delete(agentId);
    const throughTunnel = tunnel && this.#throughTunnel(replica, tunnel);
    // Routable at once; the direct way goes before it as soon as it has answered.
    if (throughTunnel) this.#members.set(agentId, { via: "tunnel", ways: [throughTunnel], inFlight: 0 });
    if (!replica.direct) return;
    const direct = this.#direct(replica);
    const usable = !throughTunnel || (await this.#answers(direct));
    if (!usable || this.#wanted.get(agentId) !== replica) return;
    const ways = throughTunnel ? [direct, throughTunnel] : [direct];
    const inFlight = this.#members.get(agentId)?.inFlight ?? 0;
    this.#members.set(agentId, { via: "direct", ways, inFlight });
  }

  delete(agentId: string): void {
    this.#wanted.delete(agentId);
    this.#members.delete(agentId);
  }

  #config(url: string, apiKey: string | null): BackendConfig {
    const { modelId } = this.options;
    return {
      name: `agent-${modelId}`,
      kind: external.kind,
      type: external.kind,
      url,
      apiKey,
      models: [modelId],
    };
  }

  #direct({ host, port, apiKey }: Replica): Backend {
    return external.create(this.#config(`http://${urlHost(host)}:${port}`, apiKey), this.options.deps);
  }

  /** The tunnel adds the engine's key by itself, on the node. */
  #throughTunnel({ agentId }: Replica, tunnel: TunnelFetch): Backend {
    const base = `agent://${agentId}`;
    return external.create(this.#config(base, null), {
      ...this.options.deps,
      openOrigin: null,
      fetch: async (url, init) => {
        try {
          return await tunnel(this.options.modelId, url.slice(base.length), init as TunnelFetchInit);
        } catch (error) {
          if (!(error instanceof TunnelError)) throw error;
          throw new BackendError(error.neverStarted ? "connect" : "transport", error.message);
        }
      },
    });
  }

  /** Whether the engine that answers there is the one that is meant: it has to list the model. */
  async #answers(direct: Backend): Promise<boolean> {
    const { models } = await direct.probe(AbortSignal.timeout(REACH_TIMEOUT_MS));
    return models.some(({ id }) => id === this.options.modelId);
  }

  async #spread({ signal }: ModelCall, ask: (way: Backend) => Promise<Answer>): Promise<Answer> {
    let refusal = new BackendError("connect", `no node serves ${this.options.modelId} now`);
    const members = [...this.#members.values()].sort((a, b) => a.inFlight - b.inFlight);
    for (const member of members) {
      for (const way of member.ways) {
        member.inFlight++;
        try {
          const answer = await ask(way);
          // Where there is no choice nothing has to be counted, and the body passes untouched.
          if (members.length > 1) return whenAnswerEnds(answer, signal, () => member.inFlight--);
          member.inFlight--;
          return answer;
        } catch (error) {
          member.inFlight--;
          if (!(error instanceof BackendError) || error.kind !== "connect") throw error;
          refusal = error;
        }
      }
    }
    throw refusal;
  }

  /** Healthy as long as one node answers. The model is known by its id, whatever the engine calls it. */
  async #probe(signal: AbortSignal): Promise<ProbeResult> {
    const models = [{ id: this.options.modelId }];
    let last: ProbeResult = { state: "Unhealthy", models, detail: "no node serves it now" };
    for (const { ways } of this.#members.values())
      for (const way of ways) {
        last = { ...(await way.probe(signal)), models };
        if (last.state === "Healthy") return last;
      }
    return last;
  }
}
