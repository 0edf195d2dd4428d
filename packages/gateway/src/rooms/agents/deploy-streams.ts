import type { ProgressParams } from "@model-gateway/protocol/agent.ts";
import type { EventStream } from "../../bus/contract.ts";
import type { Needs } from "../foundation.ts";
import { modelsProgress } from "./notifications.ts";
import type { NodeState } from "./session.ts";

/** Deployments being followed; the oldest is dropped. */
const STREAMS_MAX = 1_000;
/** Notifications of one stream that wait for the backend to be registered. */
const WAITING_MAX = 64;
/** Progress is passed on at most once in this time. */
const FIGURES_EVERY_MS = 100;
/** If a lost node does not come back within this time, its deployments count as failed. */
const LOST_NODE_DEADLINE_MS = 60_000;

export type Progress = Pick<ProgressParams, "status" | "progress" | "message">;

interface Followed {
  streamId: string;
  agentId: string;
  modelId: string;
  stream: EventStream;
  last: Progress;
  /** Settles when everything queued so far has been sent. */
  tail: Promise<void>;
  waiting: number;
  toldAtMs: number;
  cancelDeadline: (() => void) | null;
}

const settled = Promise.resolve();

/** The notification streams of deployments, from the order until the model ends. */
export class DeployStreams {
  readonly #followed = new Map<string, Followed>();

  constructor(readonly options: Needs<"events" | "clock">) {}

  open({ userId, ...order }: { streamId: string; userId: string; agentId: string; modelId: string }): void {
    const { events } = this.options;
    const oldest = this.#followed.keys().next();
    if (this.#followed.size >= STREAMS_MAX && !oldest.done) this.drop(oldest.value);
    this.#followed.set(order.streamId, {
      ...order,
      stream: events.open({ userId }, order.streamId),
      last: { status: "queued", progress: 0 },
      tail: settled,
      waiting: 0,
      toldAtMs: 0,
      cancelDeadline: null,
    });
  }

  drop(streamId: string): void {
    const entry = this.#followed.get(streamId);
    if (!entry) return;
    this.#followed.delete(streamId);
    entry.cancelDeadline?.();
    entry.stream.end();
  }

  /** Progress from a node, which may only report on streams opened for it and that model. */
  progress(agentId: string, news: ProgressParams, after: Promise<void>): void {
    const entry = this.#followed.get(news.stream_id);
    if (entry?.agentId !== agentId || entry.modelId !== news.model_id) return;
    this.#tell(entry, { status: news.status, progress: news.progress, message: news.message }, after);
  }

  /** A connected node's list of models is the state of its deployments. */
  reconcile({ agentId, models, pending }: NodeState, after: Promise<void>): void {
    for (const entry of this.#of(agentId)) {
      entry.cancelDeadline?.();
      entry.cancelDeadline = null;
      const waiting = pending.find(({ model_id }) => model_id === entry.modelId);
      if (models.some(({ model_id }) => model_id === entry.modelId))
        this.#tell(entry, { status: "ready", progress: 100 }, after);
      else if (waiting) this.#tell(entry, waiting);
      else this.#fail(entry, "the node no longer has this model");
    }
  }

  lost(agentId: string): void {
    for (const entry of this.#of(agentId)) {
      const { status, progress } = entry.last;
      this.#tell(entry, {
        status: status === "ready" ? "loading" : status,
        progress,
        message: "the connection to the node was lost; waiting for it to reconnect",
      });
      entry.cancelDeadline ??= this.options.clock.after(LOST_NODE_DEADLINE_MS, () =>
        this.#fail(entry, `the node did not reconnect within ${LOST_NODE_DEADLINE_MS / 1000} s`),
      );
    }
  }

  removed(agentId: string): void {
    for (const entry of this.#of(agentId)) this.#fail(entry, "the node was deregistered");
  }

  #fail(entry: Followed, message: string): void {
    this.#tell(entry, { status: "failed", progress: entry.last.progress, message });
  }

  #of(agentId: string): Followed[] {
    return [...this.#followed.values()].filter((entry) => entry.agentId === agentId);
  }

  #tell(entry: Followed, { status, progress, message }: Progress, after = settled): void {
    const { stream, agentId, modelId, last } = entry;
    if (entry.toldAtMs > 0 && Bun.deepEquals(last, { status, progress, message })) return;
    const nowMs = this.options.clock.now();
    const over = status === "failed" || status === "stopped";
    entry.last = { status, progress, message };
    // Progress within a state may be skipped; a change of state may not.
    const isFigure = status === last.status && message === last.message;
    const isSoon = nowMs - entry.toldAtMs < FIGURES_EVERY_MS;
    if (isFigure && (entry.waiting >= WAITING_MAX || isSoon)) return;
    entry.toldAtMs = nowMs;
    entry.waiting++;
    const ids = { stream_id: stream.sessionId, agent_id: agentId, model_id: modelId };
    const params = { ...ids, status, progress, ...(message !== undefined && { message }) };
    entry.tail = Promise.all([entry.tail, after]).then(() => {
      entry.waiting--;
      stream.emit(modelsProgress, params);
      if (over) stream.end();
    });
    if (over) {
      this.#followed.delete(stream.sessionId);
      entry.cancelDeadline?.();
    }
  }
}
