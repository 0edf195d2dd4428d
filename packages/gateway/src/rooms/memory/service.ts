import { RpcClient } from "@model-gateway/wire/json-rpc";
import type { z } from "zod";
import { withDeadline } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Needs } from "../foundation.ts";
import { Activity, type MemoryEvent } from "./activity.ts";
import { SentFacts } from "./inject.ts";
import { ANSWERS, RECALL_ITEMS_MAX, type RecalledItem } from "./protocol.ts";
import { type MemoryOutcome, type Turn, type TurnOutcome, WritebackQueue } from "./writeback.ts";

/** How long a chat waits for recalled facts, including the connection. */
const RECALL_LIMIT_MS = 300;
const CONNECT_TIMEOUT_MS = 2_000;
const CALL_TIMEOUT_MS = 5_000;
const FLUSH_LIMIT_MS = 1_000;
const RECALLS_IN_FLIGHT_MAX = 256;
/** Eight facts are far smaller; parsing more than this would block the event loop. */
const ANSWER_CHARS_MAX = 1024 * 1024;
/** After this many failures in a row the circuit opens for a while, and chats do not wait. */
const FAILURES_TO_PAUSE = 3;
const PAUSE_MS = 10_000;
/** The end of a long question is usually what it is about. */
const QUERY_CHARS_MAX = 2_000;
/** How many facts an event names. */
const NODE_IDS_TOLD_MAX = 50;
const TURN_MESSAGES_MAX = 20;
const MESSAGE_CHARS_MAX = 16_000;

export type RecallState = "enabled" | "disabled" | "offline";
export interface Recall {
  state: RecallState;
  items: RecalledItem[];
}

export interface MemoryOptions extends Needs<"bus" | "clock" | "log" | "instances"> {
  url: string | null;
}

/** Long-term memory, kept by a separate service. Chats work without it. */
export class Memory {
  readonly facts = new SentFacts();
  readonly #client: RpcClient | null;
  readonly #activity: Activity;
  readonly #writeback: WritebackQueue;
  #recallsInFlight = 0;
  #failuresInARow = 0;
  #pausedUntilMs = 0;

  constructor(readonly options: MemoryOptions) {
    const { url, clock } = options;
    const bounds = { connectTimeoutMs: CONNECT_TIMEOUT_MS, messageCharsMax: ANSWER_CHARS_MAX };
    this.#client = url === null ? null : new RpcClient({ url, clock, ...bounds });
    this.#activity = new Activity({ ...options, onDelete: (userId) => this.facts.forget(userId) });
    this.#writeback = new WritebackQueue({
      clock,
      write: async ({ userId: user_id, messages, idempotencyKey: idempotency_key }) =>
        (await this.#call("Memory.Write", { user_id, messages, idempotency_key })).node_ids,
      onDone: ({ userId }, outcome) => this.#written(userId, outcome),
    });
  }

  get enabled(): boolean {
    return this.#client !== null;
  }

  async status(userId: string) {
    return { enabled: this.enabled, writeback: this.enabled, events: await this.#activity.of(userId) };
  }

  /** Facts about the user that are relevant to `query`. Never throws, and takes 300 ms at most. */
  async recall(asked: { userId: string; query: string; signal: AbortSignal }): Promise<Recall> {
    const { userId, query, signal } = asked;
    const { clock } = this.options;
    if (!this.#client) return { state: "disabled", items: [] };
    const startedAtMs = clock.now();
    if (startedAtMs < this.#pausedUntilMs || this.#recallsInFlight >= RECALLS_IN_FLIGHT_MAX)
      return { state: "offline", items: [] };
    if (!query.trim()) return { state: "enabled", items: [] };
    this.#recallsInFlight++;
    const end = (outcome: MemoryOutcome) => {
      this.#record(userId, "recall", { ...outcome, durationMs: clock.now() - startedAtMs });
      this.#count(outcome.error !== undefined);
    };
    const deadline = { delayMs: RECALL_LIMIT_MS, late: `no answer within ${RECALL_LIMIT_MS} ms` };
    const params = { user_id: userId, query: query.slice(-QUERY_CHARS_MAX), limit: RECALL_ITEMS_MAX };
    try {
      const { items } = await withDeadline(clock, deadline, (limit) =>
        this.#call("Memory.Recall", params, { signal: AbortSignal.any([signal, limit]) }),
      );
      end({ nodeIds: items.map(({ node_id }) => node_id) });
      return { state: "enabled", items };
    } catch (error) {
      // A client that left is not a failure of the service.
      if (!signal.aborted) end({ error });
      return { state: "offline", items: [] };
    } finally {
      this.#recallsInFlight--;
    }
  }

  /** Queues a finished turn to be remembered; returns at once. */
  writeback({ userId, messages, idempotencyKey }: Turn): void {
    if (!this.#client) return;
    const kept = messages
      .filter(({ content }) => content.trim() !== "")
      .slice(-TURN_MESSAGES_MAX)
      .map(({ role, content }) => ({ role, content: content.slice(0, MESSAGE_CHARS_MAX) }));
    if (kept.length > 0) this.#writeback.push({ userId, messages: kept, idempotencyKey });
  }

  async list(userId: string, { limit, offset }: { limit: number; offset: number }) {
    if (!this.#client) return { items: [], total: 0 };
    try {
      return await this.#call("Memory.List", { user_id: userId, limit, offset });
    } catch (error) {
      return fail("unavailable", "The memory service cannot be reached, or does not list; try again later", {
        cause: error,
      });
    }
  }

  async delete(userId: string, nodeId: string): Promise<boolean> {
    if (!this.#client) return false;
    const { clock } = this.options;
    const startedAtMs = clock.now();
    const record = (outcome: MemoryOutcome) =>
      this.#record(userId, "delete", {
        ...outcome,
        nodeIds: [nodeId],
        durationMs: clock.now() - startedAtMs,
      });
    try {
      const { deleted } = await this.#call("Memory.Delete", { user_id: userId, node_id: nodeId });
      record({ count: deleted ? 1 : 0 });
      return deleted;
    } catch (error) {
      record({ count: 0, error });
      return fail("unavailable", "The memory service cannot be reached; try again later", { cause: error });
    }
  }

  /** Before the process ends, waits briefly for the last turns to be written. */
  flush(): Promise<void> {
    return this.#writeback.flush(FLUSH_LIMIT_MS);
  }

  close(): void {
    this.#writeback.close();
    this.#client?.close();
  }

  async #call<Method extends keyof typeof ANSWERS>(
    method: Method,
    params: Record<string, unknown>,
    until: { timeoutMs?: number; signal?: AbortSignal } = { timeoutMs: CALL_TIMEOUT_MS },
  ): Promise<z.output<(typeof ANSWERS)[Method]>> {
    const schema: z.ZodType = ANSWERS[method];
    const { success, data } = schema.safeParse(await this.#client!.call(method, params, until));
    return success
      ? (data as z.output<(typeof ANSWERS)[Method]>)
      : fail("unavailable", `The memory service answered ${method} with an invalid result`);
  }

  #written(userId: string, outcome: TurnOutcome): void {
    const { error } = outcome;
    if (error !== undefined) this.options.log.warn("storing a turn in memory failed", { userId, error });
    this.#record(userId, "writeback", outcome);
  }

  #record(userId: string, kind: MemoryEvent["kind"], { durationMs, error, ...outcome }: TurnOutcome): void {
    const { nodeIds = [], count = nodeIds.length } = outcome;
    this.#activity.record(userId, {
      kind,
      outcome: error === undefined ? "ok" : "failed",
      count,
      node_ids: nodeIds.slice(0, NODE_IDS_TOLD_MAX),
      duration_ms: durationMs,
      detail: error === undefined ? null : describe(error),
    });
  }

  #count(failed: boolean): void {
    this.#failuresInARow = failed ? this.#failuresInARow + 1 : 0;
    if (this.#failuresInARow < FAILURES_TO_PAUSE) return;
    this.#failuresInARow = 0;
    this.#pausedUntilMs = this.options.clock.now() + PAUSE_MS;
    // The connection may be dead; the next attempt opens a new one.
    this.#client?.drop("the memory service does not answer");
  }
}

const DETAIL_CHARS_MAX = 200;
const describe = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).slice(0, DETAIL_CHARS_MAX);
