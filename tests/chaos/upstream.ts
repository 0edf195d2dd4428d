import {
  type FakeUpstream,
  type ReceivedRequest,
  type Reply,
  startUpstream,
  USAGE,
  wholeStream,
} from "@model-gateway/testing/upstream.ts";
import { type Plan, planOf, type Temper } from "./plan.ts";
import type { JournalRecord, Recorder } from "./records.ts";

/** Should the gateway never close what goes on for ever, it does so for this long. */
const FOR_EVER_MS = 300_000;
const WAITS_MS = 10;

export interface JournalingOptions {
  name: string;
  models: readonly string[];
  seed: number;
  temper: Temper;
  /** The key that the gateway was given for it; repeated in its errors, as careless servers do. */
  apiKey: string;
  journal: Recorder<JournalRecord>;
}

/** The operation that a request belongs to, which its prompt says. */
export const operationIn = (text: string): number => Number(/\bop-(\d+)\b/.exec(text)?.[1] ?? -1);

/** An upstream that writes down every byte, and does with each request what its plan says; it can be ended and started again. */
export class JournalingUpstream {
  #server: FakeUpstream;

  constructor(readonly options: JournalingOptions) {
    this.#server = this.#start(0);
  }

  get port(): number {
    return this.#server.port;
  }

  #start(port: number): FakeUpstream {
    const { name, models, journal } = this.options;
    const offset = Date.now();
    return startUpstream({
      models,
      port,
      handler: (request, reply) => this.#answer(request, reply),
      tap: ({ id: number, ...event }) => {
        // Numbers begin again with each start.
        const id = offset * 1_000 + number;
        const record = { upstream: name, id, atMs: Date.now() };
        if (event.event === "ended") return journal.write({ ...record, ...event });
        const bytes = Buffer.from(event.bytes).toString("latin1");
        if (event.event === "sent") journal.write({ ...record, event: "sent", bytes });
        else journal.write({ ...record, event: "request", op: operationIn(bytes), bytes });
      },
    });
  }

  async #answer(request: ReceivedRequest, reply: Reply): Promise<void> {
    const { seed, temper } = this.options;
    const plan = planOf(seed, operationIn(request.text), temper);
    if (plan.behaviour === "refuses") return reply.json(this.#complaint(), 500);
    if (!plan.stream) return this.#whole(plan, request, reply);
    reply.head(200, { "content-type": "text/event-stream" });
    const words = plan.behaviour === "goes on for ever" ? Number.POSITIVE_INFINITY : plan.words;
    const untilMs = Date.now() + FOR_EVER_MS;
    const [first, piece, ...last] = wholeStream(["word "]) as [string, string, ...string[]];
    await reply.write(first);
    for (let sent = 0; sent < words && request.closedAtMs === null && Date.now() < untilMs; sent++) {
      if (sent === Math.floor(plan.words / 2)) {
        if (plan.behaviour === "breaks off") return reply.reset();
        if (plan.behaviour === "fails inside") {
          await reply.write(`data: ${JSON.stringify(this.#complaint())}\n\n`);
          return reply.end();
        }
      }
      await reply.write(piece);
      await Bun.sleep(plan.gapMs);
    }
    for (const event of last) await reply.write(event);
    await reply.end();
  }

  async #whole(plan: Plan, request: ReceivedRequest, reply: Reply): Promise<void> {
    if (plan.behaviour === "goes on for ever") {
      const untilMs = Date.now() + FOR_EVER_MS;
      while (request.closedAtMs === null && Date.now() < untilMs) await Bun.sleep(WAITS_MS);
      return;
    }
    await Bun.sleep(plan.words * plan.gapMs);
    if (plan.behaviour === "breaks off") return reply.reset();
    if (plan.behaviour === "fails inside") return reply.json(this.#complaint());
    const message = { role: "assistant", content: "word ".repeat(plan.words) };
    const choices = [{ index: 0, message, finish_reason: "stop" }];
    await reply.json({ id: "c", object: "chat.completion", created: 1, model: "m", choices, usage: USAGE });
  }

  #complaint() {
    const { apiKey } = this.options;
    const message = `overloaded, ${apiKey} (Basic ${btoa(`user:${apiKey}`)}) may try again`;
    return { error: { message, type: "server_error", code: apiKey } };
  }

  stop(): void {
    this.#server.stop();
  }

  /** On the same port. */
  startAgain(): void {
    this.#server = this.#start(this.#server.port);
  }
}
