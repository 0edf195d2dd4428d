import { z } from "zod";
import { inBackground } from "../../kernel/background.ts";
import type { Needs } from "../foundation.ts";
import { difference, StateChange, withChange } from "./changes.ts";
import { NodeState } from "./state.ts";

const TOPIC = "agents-presence";
const NODES_MAX = 10_000;
/** However often a node reports, the other instances hear of it once in this time. */
const ANNOUNCE_EVERY_MS = 200;
/** After a change that could not be applied, the whole states are asked for at most this often. */
const ASK_EVERY_MS = 1_000;

const PresenceMessage = z.discriminatedUnion("kind", [
  /** Asks every instance to announce its nodes again. */
  z.object({ kind: z.literal("ask"), instance: z.string() }),
  z.object({ kind: z.literal("state"), instance: z.string(), revision: z.int(), state: NodeState }),
  /** What changed since the revision before; a receiver that does not have that one asks for the whole. */
  z.object({
    kind: z.literal("change"),
    instance: z.string(),
    agentId: z.string(),
    epoch: z.int(),
    revision: z.int(),
    change: StateChange,
  }),
  z.object({ kind: z.literal("gone"), instance: z.string(), agentId: z.string(), epoch: z.int() }),
  z.object({ kind: z.literal("deregistered"), instance: z.string(), agentId: z.string() }),
]);
type PresenceMessage = z.infer<typeof PresenceMessage>;

/** A node whose connection another instance holds. */
export interface RemoteNode {
  instance: string;
  state: NodeState;
  /** Counts what its instance has announced of this connection. */
  revision: number;
  heardAtMs: number;
}

/** A node that is connected here, as the other instances know it. */
interface Announced {
  state: NodeState;
  revision: number;
  announcedAtMs: number;
  /** What is announced when the time has come. */
  next: NodeState | null;
  cancel: () => void;
}

interface PresenceOptions extends Needs<"bus" | "clock" | "log"> {
  instance: string;
  /** How long a node counts as online without news of it. */
  silenceMaxMs: number;
  /** Another instance asked, or may have missed something. */
  onAsked(): void;
  /** Whether another instance's report of a node is newer than what is known here. */
  accepts(state: NodeState): boolean;
  /** A node is connected to another instance. */
  onRemote(node: RemoteNode): void;
  /** It is not held there any more; `isElsewhere`: because it has connected to another instance, or here. */
  onRemoteGone(node: RemoteNode, isElsewhere: boolean): void;
  /** An instance no longer holds a node, which may be elsewhere by now. */
  onLeft(instance: string, agentId: string): void;
  /** Delivered on every instance, including the one that published it. */
  onDeregistered(agentId: string): void;
}

/** What instances tell each other about their nodes, so that each of them can list them all. */
export class Presence {
  readonly #remote = new Map<string, RemoteNode>();
  readonly #announced = new Map<string, Announced>();
  readonly #unsubscribe: () => void;
  #askedAtMs = Number.NEGATIVE_INFINITY;

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

  /** The newest that is known of nodes held elsewhere. */
  nodes(): RemoteNode[] {
    return [...this.#remote.values()];
  }

  get(agentId: string): RemoteNode | null {
    return this.#remote.get(agentId) ?? null;
  }

  /** Tells the others what is new about a node: at once, or together with what else comes in a moment. */
  announce(state: NodeState): void {
    const announced = this.#announced.get(state.agentId);
    if (announced?.state.epoch !== state.epoch) {
      this.announceWhole(state);
      return;
    }
    const { clock } = this.options;
    const waitMs = announced.announcedAtMs + ANNOUNCE_EVERY_MS - clock.now();
    if (waitMs <= 0) this.#announceChange(announced, state);
    else {
      if (!announced.next)
        announced.cancel = clock.after(
          waitMs,
          () => announced.next && this.#announceChange(announced, announced.next),
        );
      announced.next = state;
    }
  }

  /** For those who know nothing of the node yet. */
  announceWhole(state: NodeState): void {
    const { instance, clock } = this.options;
    const announced = this.#announced.get(state.agentId);
    announced?.cancel();
    const revision = (announced?.revision ?? 0) + 1;
    this.#announced.set(state.agentId, {
      state,
      revision,
      announcedAtMs: clock.now(),
      next: null,
      cancel: () => {},
    });
    this.#publish({ kind: "state", instance, revision, state });
  }

  #announceChange(announced: Announced, state: NodeState): void {
    const { instance, clock } = this.options;
    const { agentId, epoch } = state;
    announced.cancel();
    const change = difference(announced.state, state);
    Object.assign(announced, {
      state,
      revision: announced.revision + 1,
      announcedAtMs: clock.now(),
      next: null,
    });
    this.#publish({ kind: "change", instance, agentId, epoch, revision: announced.revision, change });
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

  /** A node has connected here: earlier reports by other instances no longer apply. */
  connectedHere(agentId: string): void {
    this.#forget(agentId, { isElsewhere: true });
  }

  #forget(agentId: string, { isElsewhere = false } = {}): void {
    const node = this.#remote.get(agentId);
    if (!node) return;
    this.#remote.delete(agentId);
    this.options.onRemoteGone(node, isElsewhere);
  }

  /** Drops nodes of instances that went silent. */
  sweep(): void {
    const { clock, silenceMaxMs } = this.options;
    for (const [agentId, { heardAtMs }] of this.#remote)
      if (clock.now() - heardAtMs >= silenceMaxMs) this.#forget(agentId);
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
    else if (message.kind === "change") this.#apply(message);
    else {
      const known = this.#remote.get(message.agentId);
      if (known && known.state.epoch <= message.epoch) this.#forget(message.agentId);
      this.options.onLeft(message.instance, message.agentId);
    }
  }

  #onDeregistered(agentId: string): void {
    this.#untell(agentId);
    this.#forget(agentId);
    this.options.onDeregistered(agentId);
  }

  #apply({ instance, agentId, epoch, revision, change }: Extract<PresenceMessage, { kind: "change" }>): void {
    const { clock } = this.options;
    const known = this.#remote.get(agentId);
    if (known?.instance === instance && known.state.epoch === epoch && known.revision + 1 === revision) {
      this.#learn({ instance, revision, state: withChange(known.state, change) });
      return;
    }
    if ((known && known.state.epoch > epoch) || clock.now() - this.#askedAtMs < ASK_EVERY_MS) return;
    this.#askedAtMs = clock.now();
    this.#publish({ kind: "ask", instance: this.options.instance });
  }

  #learn({ instance, revision, state }: Pick<RemoteNode, "instance" | "revision" | "state">): void {
    const known = this.#remote.get(state.agentId);
    if (known ? known.state.epoch > state.epoch : this.#remote.size >= NODES_MAX) return;
    if (!this.options.accepts(state)) return;
    if (known && known.instance !== instance) this.#forget(state.agentId, { isElsewhere: true });
    const node = { instance, revision, state, heardAtMs: this.options.clock.now() };
    this.#remote.set(state.agentId, node);
    this.options.onRemote(node);
  }
}
