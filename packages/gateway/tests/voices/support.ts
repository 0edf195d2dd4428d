import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import type { BootOptions } from "@model-gateway/testing/gateway.ts";
import { politeHandler, type ReceivedRequest, type Reply } from "@model-gateway/testing/upstream.ts";
import { fail, ServiceError } from "../../src/kernel/errors.ts";
import { ChatMeter } from "../../src/rooms/inference/stream/chat-meter.ts";
import { SpokenStream } from "../../src/rooms/inference/voices/spoken-stream.ts";
import type { Speaker } from "../../src/rooms/inference/voices/voice.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

export const fixture = (name: string): Buffer<ArrayBuffer> =>
  readFileSync(join(import.meta.dir, "fixtures", name)) as Buffer<ArrayBuffer>;

// biome-ignore lint/suspicious/noExplicitAny: tests look into bodies freely
export type Any = any;

/** How the upstream answers one request, and what came to it. */
export interface Upstream {
  readonly bodies: Any[];
  readonly requests: ReceivedRequest[];
  /** Requests that the gateway broke off. */
  readonly aborts: number;
  /** Bytes of the last endless stream that the gateway took. */
  bytesRead: number;
  answer: (request: ReceivedRequest, reply: Reply) => void | Promise<void>;
}

const USAGE = {
  prompt_tokens: 21,
  completion_tokens: 9,
  total_tokens: 30,
  prompt_tokens_details: { cached_tokens: 16 },
  completion_tokens_details: { reasoning_tokens: 4 },
};

export const completion =
  (message: object, finish = "stop"): Upstream["answer"] =>
  (_, reply) =>
    reply.json({
      id: "chatcmpl-1",
      object: "chat.completion",
      created: 1_763_000_000,
      model: "gpt-test",
      choices: [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finish }],
      usage: USAGE,
    });

export const eventStream =
  (body: string | Uint8Array): Upstream["answer"] =>
  (_, reply) =>
    reply.stream([body]);

/** A stream that goes on for as long as it is taken. */
export const endlessStream =
  (upstream: Upstream, line: string): Upstream["answer"] =>
  async (request, reply) => {
    reply.head(200, { "content-type": "text/event-stream" });
    while (request.closedAtMs === null) {
      await reply.write(line);
      upstream.bytesRead += line.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };

export interface VoiceBench extends InferenceBench {
  asked: Upstream;
  /** As at the start: nothing asked yet, and a polite answer. */
  reset(): void;
}

/** A gateway whose one upstream answers what the test says. */
export async function bootVoices(options?: BootOptions): Promise<VoiceBench> {
  const bench = await bootInference(options);
  const asked: Upstream = {
    get bodies() {
      return bench.upstream.requests.map(({ json }) => json);
    },
    get requests() {
      return bench.upstream.requests;
    },
    get aborts() {
      return bench.upstream.requests.filter(({ closedAtMs }) => closedAtMs !== null).length;
    },
    bytesRead: 0,
    answer: completion({ content: "ok" }),
  };
  const reset = () => {
    bench.upstream.requests.length = 0;
    asked.bytesRead = 0;
    asked.answer = completion({ content: "ok" });
  };
  bench.upstream.answer((request, reply) =>
    request.path.endsWith("/chat/completions") ? asked.answer(request, reply) : politeHandler(request, reply),
  );
  return { ...bench, asked, reset };
}

const HEAD = { id: "chatcmpl-1", created: 1, model: "m" };
const BYTES_PER_TOKEN = 4;

/** A stream in a speaker's words, as a turn tells it, without the gateway around it. `pause` runs between pieces. */
export async function spoken(
  pieces: Iterable<Uint8Array>,
  speaker: Speaker,
  { clock = new ManualClock(), pause }: { clock?: ManualClock; pause?: () => unknown } = {},
): Promise<string> {
  let text = "";
  const listener = new SpokenStream(speaker, clock);
  listener.writeTo({
    write: (bytes) => {
      text += bytes;
      return true;
    },
    end: (last) => {
      text += Buffer.from(last ?? []);
    },
    terminate: () => fail("internal", "a stream is ended, not terminated"),
  });
  const meter = new ChatMeter({
    keepUsage: true,
    head: HEAD,
    onChunk: (chunk, choices) => listener.chunk(chunk, choices),
  });
  for (const piece of pieces) {
    await pause?.();
    if (meter.done || meter.failure !== null) break;
    meter.feed(piece);
    listener.write();
  }
  meter.flush();
  if (meter.complete && meter.failure === null) {
    const counted = { promptTokens: 10, completionTokens: Math.ceil(meter.textBytes / BYTES_PER_TOKEN) };
    const settled = meter.usage ?? counted;
    meter.closing(settled);
    listener.finish(settled, HEAD);
  } else {
    const message = meter.failure ?? "the upstream ended the stream before the answer was complete";
    listener.error(new ServiceError("bad_gateway", message));
  }
  listener.end();
  return text;
}

export interface NamedEvent {
  event: string;
  data: Any;
}

/** The events of a stream's text. */
export function eventsOf(text: string): NamedEvent[] {
  return text
    .split("\n\n")
    .filter((block) => block.startsWith("event: "))
    .map((block) => {
      const [event, data] = block.split("\n");
      return { event: event!.slice(7), data: JSON.parse(data!.slice(6)) };
    });
}

/** What a promise rejects with; the clients' promises are no plain ones, so `expect().rejects` cannot see into them. */
export const failing = (promise: PromiseLike<unknown>): Promise<Any> =>
  Promise.resolve(
    promise.then(
      () => {
        throw new Error("expected a rejection");
      },
      (thrown: unknown) => thrown,
    ),
  );
