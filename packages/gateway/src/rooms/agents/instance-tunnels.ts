import { TunnelClient, type TunnelFetchInit, WAITING_MAX } from "@model-gateway/protocol/tunnel/client.ts";
import type { FrameChannel } from "@model-gateway/protocol/tunnel/flow.ts";
import { FrameError, STREAMS_MAX, TunnelError } from "@model-gateway/protocol/tunnel/frames.ts";
import { TunnelServer } from "@model-gateway/protocol/tunnel/server.ts";
import type { TunnelFetch } from "../../backends/contract.ts";
import type { Bus } from "../../bus/contract.ts";
import type { Log } from "../../kernel/log.ts";

const topicOf = (instance: string) => `agents-tunnel:${instance}`;
/** Requests that one other instance may send to one of our nodes: they wait here, in one line with our own. */
const STREAMS_PER_PEER_MAX = STREAMS_MAX + WAITING_MAX;
const SCHEME = "node:";

interface InstanceTunnelsOptions {
  bus: Bus;
  log: Log;
  instance: string;
  /** The tunnel of a node that is connected here; null when it is not. */
  local(agentId: string): TunnelFetch | null;
}

/**
 * Inference for a node that another instance holds: the frames of the node's own tunnel, carried between the
 * two instances by the bus. The holder is to the other what the node is to the holder, so flow control and
 * cancellation reach from end to end.
 *
 * A message is `<from> <agent id> <asks|answers> <frame in base64>` on the topic of the receiving instance.
 */
export class InstanceTunnels {
  /** Towards other instances, by holder and node. */
  readonly #clients = new Map<string, TunnelClient>();
  /** For other instances, by asker and node. */
  readonly #servers = new Map<string, TunnelServer>();
  readonly #unsubscribe: () => void;

  constructor(readonly options: InstanceTunnelsOptions) {
    const { bus, instance } = options;
    this.#unsubscribe = bus.subscribe(topicOf(instance), (text) => this.#receive(text));
    // Frames may have been lost, and a stream with a gap would wait forever.
    bus.onGap(() => this.#closeAll("the instances lost touch"));
  }

  fetchVia(holder: string, agentId: string): TunnelFetch {
    const key = `${holder} ${agentId}`;
    return (modelId, path, init) => {
      let client = this.#clients.get(key);
      if (!client) {
        client = new TunnelClient({
          channel: this.#channel({ to: holder, agentId, role: "asks" }),
          streamsMax: STREAMS_PER_PEER_MAX,
        });
        this.#clients.set(key, client);
      }
      return client.fetch(modelId, path, init);
    };
  }

  /** The node is no longer held there: what was asked through that instance fails. */
  drop(holder: string, agentId: string): void {
    const key = `${holder} ${agentId}`;
    this.#clients.get(key)?.close("the node is no longer connected there");
    this.#clients.delete(key);
  }

  close(): void {
    this.#unsubscribe();
    this.#closeAll("this instance is stopping");
  }

  #closeAll(reason: string): void {
    for (const client of this.#clients.values()) client.close(reason);
    for (const server of this.#servers.values()) server.close();
    this.#clients.clear();
    this.#servers.clear();
  }

  #channel({ to, agentId, role }: { to: string; agentId: string; role: "asks" | "answers" }): FrameChannel {
    const { bus, instance } = this.options;
    return {
      send: (frame) => bus.publish(topicOf(to), `${instance} ${agentId} ${role} ${frame.toBase64()}`),
      // The credit of each stream bounds what may be on its way.
      writable: () => null,
    };
  }

  #receive(text: string): void {
    const [from = "", agentId = "", role, base64 = ""] = text.split(" ");
    const key = `${from} ${agentId}`;
    try {
      const frame = Uint8Array.fromBase64(base64);
      if (role === "answers") this.#clients.get(key)?.receive(frame);
      else this.#serve(key, { from, agentId, frame });
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.options.log.warn(
        "invalid tunnel frame from another instance; do all instances run the same version?",
      );
    }
  }

  #serve(key: string, { from, agentId, frame }: { from: string; agentId: string; frame: Uint8Array }): void {
    let server = this.#servers.get(key);
    if (!server) {
      server = new TunnelServer({
        channel: this.#channel({ to: from, agentId, role: "answers" }),
        target: (modelId) =>
          this.options.local(agentId)
            ? { baseUrl: `${SCHEME}${encodeURIComponent(modelId)}`, apiKey: null }
            : null,
        streamsMax: STREAMS_PER_PEER_MAX,
        fetch: (url, init) => this.#ask(agentId, url, init),
      });
      this.#servers.set(key, server);
    }
    server.receive(frame);
    if (server.openStreams === 0) this.#servers.delete(key);
  }

  /** `url` is the model's id and the path, as `target` put them together. */
  async #ask(agentId: string, url: string, init: BunFetchRequestInit): Promise<Response> {
    const slash = url.indexOf("/");
    const modelId = decodeURIComponent(url.slice(SCHEME.length, slash));
    const tunnel = this.options.local(agentId);
    if (!tunnel) throw new TunnelError("no_model", "the node is not connected here");
    return tunnel(modelId, url.slice(slash), init as TunnelFetchInit);
  }
}
