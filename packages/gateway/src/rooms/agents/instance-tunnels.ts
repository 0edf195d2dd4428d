import { type RelayedStream, TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import type { FrameChannel } from "@model-gateway/protocol/tunnel/flow.ts";
import {
  decodeFrames,
  encodeReset,
  type Frame,
  FrameBatch,
  FrameError,
  FrameType,
  parseOpen,
  TunnelError,
} from "@model-gateway/protocol/tunnel/frames.ts";
import type { NodeTunnel } from "../../backends/contract.ts";
import type { Needs } from "../foundation.ts";

const topicOf = (instance: string) => `agents-tunnel:${instance}`;

interface InstanceTunnelsOptions extends Needs<"bus" | "log"> {
  instance: string;
  local(agentId: string): TunnelClient | null;
}

/** Streams of one node for another instance. */
interface Relayed {
  streams: Map<number, RelayedStream>;
  answers: FrameChannel;
}

/**
 * Inference for a node that another instance holds: the frames of the node's own tunnel, carried between the two
 * instances by the bus. The holder passes them on as they are, so flow control and cancellation reach from end to end.
 *
 * A message is `<from> <agent id> <asks|answers> <frames in base64>` on the topic of the receiving instance.
 */
export class InstanceTunnels {
  /** Clients for nodes held by other instances, by holder and node. */
  readonly #clients = new Map<string, TunnelClient>();
  /** Streams relayed for other instances, by asker and node. */
  readonly #relayed = new Map<string, Relayed>();
  readonly #unsubscribe: () => void;

  constructor(readonly options: InstanceTunnelsOptions) {
    const { bus, instance } = options;
    this.#unsubscribe = bus.subscribe(topicOf(instance), (text) => this.#receive(text));
    // Frames may have been lost, and a stream with a gap would wait forever.
    bus.onGap(() => this.#closeAll("the instances lost touch"));
  }

  /** The node's tunnel, through the instance that holds its connection. */
  via(holder: string, agentId: string): NodeTunnel {
    const key = `${holder} ${agentId}`;
    const make = () => new TunnelClient(this.#channel({ to: holder, agentId, role: "asks" }));
    const client = () => this.#clients.getOrInsertComputed(key, make);
    return {
      open: (...request) => client().open(...request),
      fetch: (...request) => client().fetch(...request),
    };
  }

  /** The instance no longer holds the node: requests through it fail. */
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
    const reset = encodeReset({ code: "cancelled", message: reason });
    for (const { streams } of this.#relayed.values())
      for (const stream of streams.values()) stream.send(FrameType.reset, reset);
    this.#clients.clear();
    this.#relayed.clear();
  }

  #channel({ to, agentId, role }: { to: string; agentId: string; role: "asks" | "answers" }): FrameChannel {
    const { bus, instance } = this.options;
    const batch = new FrameBatch((frames) =>
      bus.publish(topicOf(to), `${instance} ${agentId} ${role} ${frames.toBase64()}`),
    );
    return {
      send: (type, streamId, payload) => batch.add(type, streamId, payload),
      // Each stream's credit bounds what is in flight.
      isFull: false,
      whenWritable: (run) => run(),
    };
  }

  #receive(text: string): void {
    const [from = "", agentId = "", role, base64 = ""] = text.split(" ");
    const key = `${from} ${agentId}`;
    try {
      const frames = Buffer.from(base64, "base64");
      if (role === "answers") this.#clients.get(key)?.receive(frames);
      else this.#relay(key, { from, agentId, frames: decodeFrames(frames) });
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.options.log.warn(
        "invalid tunnel frame from another instance; do all instances run the same version?",
      );
    }
  }

  #relay(key: string, asked: { from: string; agentId: string; frames: readonly Frame[] }): void {
    const { from, agentId, frames } = asked;
    const relayed = this.#relayed.getOrInsertComputed(key, () => ({
      streams: new Map(),
      answers: this.#channel({ to: from, agentId, role: "answers" }),
    }));
    for (const frame of frames) {
      const { type, streamId, payload } = frame;
      if (type === FrameType.open) this.#open(agentId, relayed, frame);
      else relayed.streams.get(streamId)?.send(type, payload);
      if (type === FrameType.reset) relayed.streams.delete(streamId);
    }
    if (relayed.streams.size === 0) this.#relayed.delete(key);
  }

  #open(agentId: string, { streams, answers }: Relayed, { streamId, payload }: Frame): void {
    try {
      const tunnel = this.options.local(agentId);
      if (!tunnel) throw new TunnelError("no_model", "the node is not connected here");
      const open = { payload, hasBody: parseOpen(payload).has_body };
      const stream = tunnel.relay(open, (type, answer) => {
        answers.send(type, streamId, answer);
        if (type === FrameType.end || type === FrameType.reset) streams.delete(streamId);
      });
      streams.set(streamId, stream);
    } catch (error) {
      if (!(error instanceof TunnelError)) throw error;
      answers.send(FrameType.reset, streamId, encodeReset(error));
    }
  }
}
