import { type Plan, planOf, type Temper } from "./plan.ts";
import type { ClientRecord, Concluded, Recorder } from "./records.ts";

/** Longer than any fault lasts; a request that takes longer is a finding. */
const PATIENCE_MS = 120_000;
/** When a client leaves that waits for nothing in particular. */
const LEAVES_AFTER_MS = 30;
/** So that a service which is away is not asked a thousand times a second. */
const REST_MS = { ok: 5, fail: 20, unknown: 100 };
const ERROR_LENGTH_MAX = 2_000;

export interface Address {
  name: string;
  url: string;
}

export interface ClientsOptions {
  seed: number;
  temper: Temper;
  lanes: number;
  /** Where requests go, in turn. */
  addresses: readonly Address[];
  keys: Record<Plan["payer"], string>;
  /** Part of every prompt. */
  canary: string;
  records: Recorder<ClientRecord>;
}

type Ending = Pick<Concluded, "type" | "ended"> & { error?: string };

/** Clients that ask without pause, and write down what they asked and what became of it. */
export class Clients {
  #next = 0;
  #isStopping = false;
  #lanes: Promise<void>[] = [];
  readonly counts = { ok: 0, fail: 0, unknown: 0 };
  readonly refusals = new Map<string, number>();

  constructor(readonly options: ClientsOptions) {}

  get begun(): number {
    return this.#next;
  }

  start(): void {
    const lane = async () => {
      while (!this.#isStopping) await Bun.sleep(REST_MS[await this.#one(this.#next++)]);
    };
    this.#lanes = Array.from({ length: this.options.lanes }, lane);
  }

  /** Resolves when every request that was begun has come to an end. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#lanes);
  }

  async #one(op: number): Promise<Concluded["type"]> {
    const { seed, temper, addresses, records } = this.options;
    const plan = planOf(seed, op, temper);
    const address = addresses[op % addresses.length]!;
    const { model, stream } = plan;
    records.write({ type: "invoke", op, atMs: Date.now(), instance: address.name, model, stream });
    const seen: Omit<Concluded, "type" | "ended" | "atMs" | "error"> = {
      op,
      firstByteMs: null,
      status: 0,
      requestId: null,
      pieces: 0,
    };
    const { error = "", ...ending } = await this.#ask(op, plan, address, seen);
    records.write({ ...seen, ...ending, error: error.slice(0, ERROR_LENGTH_MAX), atMs: Date.now() });
    this.counts[ending.type]++;
    if (ending.type === "fail")
      this.refusals.set(`${seen.status}`, (this.refusals.get(`${seen.status}`) ?? 0) + 1);
    return ending.type;
  }

  async #ask(
    op: number,
    plan: Plan,
    { url }: Address,
    seen: Pick<Concluded, "firstByteMs" | "status" | "requestId" | "pieces">,
  ): Promise<Ending> {
    const { keys, canary } = this.options;
    const leave = new AbortController();
    const patience = setTimeout(() => leave.abort("timeout"), PATIENCE_MS);
    const leaving = plan.leavesAfter === 0 ? setTimeout(() => leave.abort("left"), LEAVES_AFTER_MS) : null;
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        // One connection a request: a client library that repeats what was cut would not be told apart from the gateway.
        keepalive: false,
        signal: leave.signal,
        headers: {
          authorization: `Bearer ${keys[plan.payer]}`,
          "content-type": "application/json",
          "x-service-ref": `op-${op}`,
        },
        body: JSON.stringify({
          model: plan.model,
          stream: plan.stream,
          max_tokens: 64,
          messages: [{ role: "user", content: `op-${op} ${canary} ${"more ".repeat(20)}` }],
        }),
      });
      seen.status = response.status;
      seen.requestId = response.headers.get("x-request-id");
      if (!response.ok) {
        const error = await response.text();
        seen.firstByteMs = Date.now();
        return { type: "fail", ended: "error", error };
      }
      const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
      return await (isStream ? readStream(response, plan, leave, seen) : readWhole(response, seen));
    } catch (error) {
      if (leave.signal.aborted) return { type: "unknown", ended: leave.signal.reason };
      return { type: "unknown", ended: seen.status === 0 ? "none" : "cut", error: String(error) };
    } finally {
      clearTimeout(patience);
      if (leaving) clearTimeout(leaving);
    }
  }
}

async function readWhole(
  response: Response,
  seen: Pick<Concluded, "firstByteMs" | "pieces">,
): Promise<Ending> {
  const text = await response.text();
  seen.firstByteMs = Date.now();
  seen.pieces = JSON.parse(text).choices.length;
  return { type: "ok", ended: "whole" };
}

async function readStream(
  response: Response,
  plan: Plan,
  leave: AbortController,
  seen: Pick<Concluded, "firstByteMs" | "pieces">,
): Promise<Ending> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
    seen.firstByteMs ??= Date.now();
    text += decoder.decode(bytes, { stream: true });
    seen.pieces = text.split('"content":"').length - 1;
    if (plan.leavesAfter !== null && seen.pieces >= plan.leavesAfter) leave.abort("left");
    leave.signal.throwIfAborted();
  }
  if (text.endsWith("data: [DONE]\n\n")) return { type: "ok", ended: "done" };
  const error = /^data: (\{"error":.*)$/m.exec(text)?.[1];
  if (error !== undefined && text.endsWith("\n\n")) return { type: "fail", ended: "error", error };
  return { type: "unknown", ended: "cut" };
}
