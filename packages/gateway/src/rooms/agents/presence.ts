import { z } from "zod";
import { inBackground } from "../../kernel/log.ts";
import type { Needs } from "../foundation.ts";
import { NodeState } from "./session.ts";

const TOPIC = "agents-presence";
const NODES_MAX = 10_000;
/** A node's state is announced to other instances at most once in this time. */
const ANNOUNCE_EVERY_MS = 200;

const PresenceMessage = z.discriminatedUnion("kind", [
  /** Asks every instance to announce its nodes again. */
  z.object({ kind: z.literal("ask"), instance: z.string() }),
  z.object({ kind: z.literal("state"), instance: z.string(), state: NodeState }),
  z.object({ kind: z.literal("gone"), instance: z.string(), agentId: z.string(), epoch: z.int() }),
  z.object({ kind: z.literal("deregistered"), instance: z.string(), agentId: z.string() }),
]);
type PresenceMessage = z.infer<typeof PresenceMessage>;

export interface RemoteNode {
  instance: string;
  state: NodeState;
  heardAtMs: number;
}

interface PresenceOptions extends Needs<"bus" | "clock" | "log"> {
  instance: string;
  /** How long a node counts as online without news of it. */
  silenceMaxMs: number;
  /** Another instance asked, or may have missed something. */
  onAsked(): void;
  /** Whether another instance's report of a node is newer than what is known here. */
  accepts(state: NodeState): boolean;
  onRemote(node: RemoteNode): void;
  /** The instance lost the node; `isElsewhere`: the node has connected to another instance, or here. */
  onRemoteGone(node: RemoteNode, isElsewhere: boolean): void;
  /** An instance no longer holds a node, which may be connected elsewhere by now. */
  onLeft(instance: string, agentId: string): void;
  /** Delivered on every instance, including the one that published it. */
  onDeregistered(agentId: string): void;
}

/** Exchanges the state of nodes between instances, so that each can list them all. */
export class Presence {
  readonly remote = new Map<string, RemoteNode>();
  /** What was announced of the nodes that are connected here. */
  readonly #announced = new Map<string, { epoch: number; atMs: number; cancel: () => void }>();
  readonly #unsubscribe: () => void;

  constructor(readonly options: PresenceOptions) {
    const { bus, log } = options;
    const subscription = bus.subscribe(TOPIC, (text) => this.#receive(text));
    this.#unsubscribe = subscription;
    bus.onGap(() => this.#ask());
    inBackground(
      log,
      "asking the other instances for their nodes",
      subscription.ready.then(() => this.#ask()),
    );
  }

  /** Announces a node's state to the other instances, combining announcements that are close together. */
  announce(state: NodeState): void {
    const { clock } = this.options;
    const announced = this.#announced.get(state.agentId);
    const waitMs = announced?.epoch === state.epoch ? announced.atMs + ANNOUNCE_EVERY_MS - clock.now() : 0;
    announced?.cancel();
    if (!announced || waitMs <= 0) this.announceNow(state);
    else announced.cancel = clock.after(waitMs, () => this.announceNow(state));
  }

  announceNow(state: NodeState): void {
    const { instance, clock } = this.options;
    this.#untell(state.agentId);
    this.#announced.set(state.agentId, { epoch: state.epoch, atMs: clock.now(), cancel: () => {} });
    this.#publish({ kind: "state", instance, state });
  }

  #untell(agentId: string): void {
    this.#announced.get(agentId)?.cancel();
    this.#announced.delete(agentId);
  }

  announceGone({ agentId, epoch }: NodeState): void {
    this.#untell(agentId);
    this.#publish({ kind: "gone", instance: this.options.instance, agentId, epoch });
  }

  announceDeregistered(agentId: string): void {
    this.#onDeregistered(agentId);
    this.#publish({ kind: "deregistered", instance: this.options.instance, agentId });
  }

  /** Earlier reports of the node by another instance no longer apply. `isElsewhere`: it has connected here, or to a third. */
  forget(agentId: string, { isElsewhere = false } = {}): void {
    const node = this.remote.get(agentId);
    if (!node) return;
    this.remote.delete(agentId);
    this.options.onRemoteGone(node, isElsewhere);
  }

  sweep(): void {
    const { clock, silenceMaxMs } = this.options;
    for (const [agentId, { heardAtMs }] of this.remote)
      if (clock.now() - heardAtMs >= silenceMaxMs) this.forget(agentId);
  }

  close(): void {
    for (const { cancel } of this.#announced.values()) cancel();
    this.#unsubscribe();
  }

  #ask(): void {
    this.options.onAsked();
    this.#publish({ kind: "ask", instance: this.options.instance });
  }

  #publish(message: PresenceMessage): void {
    this.options.bus.publish(TOPIC, JSON.stringify(message));
  }

  #receive(text: string): void {
    const { instance, log, onAsked } = this.options;
    const raw = JSON.parse(text) as { instance?: unknown };
    if (raw.instance === instance) return;
    const parsed = PresenceMessage.safeParse(raw);
    if (!parsed.success) {
      log.warn("invalid node report from another instance; do all instances run the same version?");
      return;
    }
    const message = parsed.data;
    if (message.kind === "ask") onAsked();
    else if (message.kind === "deregistered") this.#onDeregistered(message.agentId);
    else if (message.kind === "state") this.#learn(message);
    else {
      const known = this.remote.get(message.agentId);
      if (known && known.state.epoch <= message.epoch) this.forget(message.agentId);
      this.options.onLeft(message.instance, message.agentId);
    }
  }

  #onDeregistered(agentId: string): void {
    this.#untell(agentId);
    this.forget(agentId);
    this.options.onDeregistered(agentId);
  }

  #learn({ instance, state }: Pick<RemoteNode, "instance" | "state">): void {
    const known = this.remote.get(state.agentId);
    if (known ? known.state.epoch > state.epoch : this.remote.size >= NODES_MAX) return;
    if (!this.options.accepts(state)) return;
    if (known && known.instance !== instance) this.forget(state.agentId, { isElsewhere: true });
    const node = { instance, state, heardAtMs: this.options.clock.now() };
    this.remote.set(state.agentId, node);
    this.options.onRemote(node);
  }
}
