/** Images, sounds, rankings and moderations, as the loosest servers read what they are asked for. */
import type { ReceivedRequest, Reply } from "@model-gateway/testing/upstream.ts";
import { isWork, PNG } from "@model-gateway/testing/work.ts";
import type { WorkName, WorkStep } from "../plot.ts";
import { fold } from "../spelling.ts";

/** US dollars; one model has them all. */
export const WORK_PRICES = {
  per_image: { "1024x1024": 0.02, "1792x1024": 0.08 },
  per_million_characters: 100,
  per_second: 0.01,
  per_call: 0.02,
} as const;
/** Numbers of the models that work is asked of; chats have those below. */
export const WORK_NUMBERS = { from: 1_000, count: 64 } as const;
export const workModel = (number: number): string => `work-${number}`;
export const COUNT_NAMES = ["n", "num_images", "batch_size", "samples"] as const;
const SIDES = ["width", "height", "resolution", "image_size", "aspect_ratio"];
const IMAGES_MAX = 16;
const DOCUMENTS_PER_CALL = 100;
const DOCUMENT_CHARS = 2_000;
const MILLION = 1_000_000;
/** 8 kHz, two bytes each. */
const WAVE_BYTES_PER_SECOND = 16_000;
/** How long it waits for a client that is going to leave. */
const HOLD_MS = 1_500;

/** One piece of work with what its upstream did. */
export class WorkTask {
  /** What it is worth in US dollars, as the upstream bills it; null: it never came. */
  worthUsd: number | null = null;
  end: "open" | "whole" | "failed" = "open";
  readonly #arrived = Promise.withResolvers<void>();

  constructor(readonly step: Pick<WorkStep, "kind" | "ending" | "makesLess" | "leave">) {}

  get arrived(): Promise<void> {
    return this.#arrived.promise;
  }
  arrive(): void {
    this.#arrived.resolve();
  }
}

type Json = Record<string, unknown>;
const folded = (body: Json, name: string): unknown =>
  Object.entries(body).findLast(([key]) => fold(key) === name)?.[1];
const numbers = (body: Json, names: readonly string[]): number[] =>
  names.map((name) => Number(folded(body, name) ?? Number.NaN)).filter((value) => Number.isFinite(value));

function imageUsd(body: Json): number {
  const { per_image: prices } = WORK_PRICES;
  const dearest = Math.max(...Object.values(prices));
  if (SIDES.some((name) => (folded(body, name) ?? null) !== null)) return dearest;
  const size = folded(body, "size") ?? null;
  if (size === null) return Math.min(...Object.values(prices));
  return prices[String(size).trim().toLowerCase() as keyof typeof prices] ?? dearest;
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [value]);
const piecesOf = (documents: readonly unknown[]): number =>
  documents.reduce<number>((sum, each) => sum + Math.ceil(JSON.stringify(each).length / DOCUMENT_CHARS), 0);

/** What is made, how much of it is told, and what that is worth. */
const WORK: Record<WorkName, (body: Json, less: boolean, bytes: Buffer) => { answer: unknown; usd: number }> =
  {
    images: (body, less) => images(body, less),
    edits: (body, less) => images(body, less),
    speech: (body) => ({
      answer: null,
      usd: (String(folded(body, "input") ?? "").length * WORK_PRICES.per_million_characters) / MILLION,
    }),
    transcriptions(_, less, bytes) {
      const at = bytes.indexOf("RIFF");
      const length = bytes.readUInt32LE(at + 40);
      const seconds = (length / WAVE_BYTES_PER_SECOND) * (less ? 0.5 : 1);
      const answer = { text: "good morning", usage: { type: "duration", seconds } };
      return { answer, usd: seconds * WORK_PRICES.per_second };
    },
    rerank(body) {
      const documents = listOf(folded(body, "documents"));
      const results = documents.map((_, index) => ({ index, relevance_score: 0.5 }));
      const calls = Math.ceil(piecesOf(documents) / DOCUMENTS_PER_CALL);
      return { answer: { results }, usd: calls * WORK_PRICES.per_call };
    },
    moderations(body) {
      const results = listOf(folded(body, "input")).map(() => ({ flagged: false }));
      return { answer: { id: "modr-1", results }, usd: results.length * WORK_PRICES.per_call };
    },
  };

function images(body: Json, less: boolean): { answer: unknown; usd: number } {
  const asked = Math.min(IMAGES_MAX, Math.max(1, ...numbers(body, COUNT_NAMES)));
  const count = less ? Math.ceil(asked / 2) : asked;
  const data = Array.from({ length: count }, () => ({ b64_json: PNG.toString("base64") }));
  return { answer: { created: 1, data }, usd: count * imageUsd(body) };
}

/** The fields of a form that are no files. */
const formFields = (bytes: Buffer): Json =>
  Object.fromEntries(
    [...bytes.toString("latin1").matchAll(/name="([^"]+)"\r\n\r\n([^\r]*)\r\n/g)].map(([, name, value]) => [
      name,
      value,
    ]),
  );

export { isWork };

export async function serveWork(
  task: WorkTask | undefined,
  request: ReceivedRequest,
  reply: Reply,
): Promise<void> {
  const { json, bytes } = request;
  const isClosed = () => request.closedAtMs !== null;
  if (!task) return reply.json({ error: { message: `whose is this at ${request.path}?` } }, 400);
  const { kind, ending, makesLess, leave } = task.step;
  const { answer, usd } = WORK[kind](json ?? formFields(bytes), makesLess, bytes);
  task.worthUsd = usd;
  task.arrive();
  if (leave.at === "dispatch")
    for (const deadline = Date.now() + HOLD_MS; !isClosed() && Date.now() < deadline; ) await Bun.sleep(5);
  if (ending !== "whole") {
    task.end = "failed";
    if (ending === "cut") return reply.reset();
    return reply.json({ error: { message: "not today" } }, ending === "refuse" ? 400 : 500);
  }
  task.end = "whole";
  if (answer !== null) return reply.json(answer);
  reply.head(200, { "content-type": "audio/mpeg" });
  await reply.write(Buffer.alloc(4_000, 7));
  await reply.end();
}
