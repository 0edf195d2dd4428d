import type { UpstreamHandler } from "./upstream.ts";

/** A second of 8 kHz mono PCM16, times `seconds`. */
export function wave(
  seconds: number,
  { rate = 8_000, claimed = seconds }: { rate?: number; claimed?: number } = {},
): Buffer {
  const samples = Buffer.alloc(Math.floor(seconds * rate) * 2);
  const head = Buffer.alloc(44);
  head.write("RIFF", 0, "latin1");
  head.writeUInt32LE(36 + claimed * rate * 2, 4);
  head.write("WAVEfmt ", 8, "latin1");
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(rate, 24);
  head.writeUInt32LE(rate * 2, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36, "latin1");
  head.writeUInt32LE(claimed * rate * 2, 40);
  return Buffer.concat([head, samples]);
}

export const PNG = Buffer.from("89504e470d0a1a0a0000000d49484452", "hex");
/** Bytes that no text encoding would survive. */
export const SOUND = Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 7) % 256));

const IMAGES_MAX = 16;
const WORK = /\/(images\/\w+|audio\/\w+|rerank|moderations)$/;
export const isWork = (path: string): boolean => WORK.test(path);

const field = (form: Buffer, name: string): string | undefined =>
  new RegExp(`name="${name}"\\r\\n\\r\\n([^\\r]*)\\r\\n`).exec(form.toString("latin1"))?.[1];

/** A server that has every kind of work, in the vendors' own wire formats. */
export const worker: UpstreamHandler = async ({ path, json, bytes }, reply) => {
  if (path.endsWith("/images/generations") || path.endsWith("/images/edits")) {
    const asked = Number(json ? (json.n ?? 1) : (field(bytes, "n") ?? 1));
    const count = Math.min(asked, IMAGES_MAX);
    const data = Array.from({ length: count }, () => ({ b64_json: PNG.toString("base64") }));
    return reply.json({ created: 1_763_000_000, data });
  }
  if (path.endsWith("/audio/speech")) {
    reply.head(200, { "content-type": "audio/mpeg" });
    for (let at = 0; at < SOUND.length; at += 7_000) await reply.write(SOUND.subarray(at, at + 7_000));
    return reply.end();
  }
  if (path.endsWith("/audio/transcriptions")) {
    if (field(bytes, "stream") === "true") {
      return reply.stream([
        'data: {"type":"transcript.text.delta","delta":"good "}\n\n',
        'data: {"type":"transcript.text.delta","delta":"morning"}\n\n',
        'data: {"type":"transcript.text.done","text":"good morning","usage":{"type":"tokens","input_tokens":14,"output_tokens":3,"total_tokens":17}}\n\n',
      ]);
    }
    if (field(bytes, "response_format") === "text") {
      reply.head(200, { "content-type": "text/plain; charset=utf-8" });
      await reply.write("good morning\n");
      return reply.end();
    }
    return reply.json({ text: "good morning", usage: { type: "duration", seconds: 2 } });
  }
  if (path.endsWith("/rerank")) {
    const results = json.documents.map((_: unknown, index: number) => ({
      index,
      relevance_score: 1 / (index + 1),
    }));
    return reply.json({ model: json.model, results, usage: { total_tokens: 21 } });
  }
  const inputs = Array.isArray(json.input) ? json.input : [json.input];
  return reply.json({
    id: "modr-1",
    model: json.model,
    results: inputs.map(() => ({ flagged: false, categories: {}, category_scores: {} })),
  });
};
