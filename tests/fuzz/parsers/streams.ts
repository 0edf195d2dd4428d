import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackendError } from "@model-gateway/gateway/backends/contract.ts";
import { StreamObjects } from "@model-gateway/gateway/backends/dialects/translate.ts";
import { ServiceError } from "@model-gateway/gateway/kernel/errors.ts";
import { readPricingFile } from "@model-gateway/gateway/rooms/billing/pricing-file.ts";
import { LineEnds } from "@model-gateway/gateway/rooms/inference/stream/event-lines.ts";
import { readForm, writeForm } from "@model-gateway/gateway/rooms/inference/unit-work/form.ts";
import { sseEvents } from "../../../packages/client/src/sse.ts";
import { inPieces } from "../mutations.ts";
import { type FuzzedParser, holds, orRefused, REFUSED, same } from "../parser.ts";

const STREAM_WORDS = [
  "\n",
  "\r",
  "\r\n",
  "\n\n",
  "data: ",
  "data:",
  "id: ",
  ": x\n",
  "event: y\n",
  "\ufeff",
  "[DONE]",
  "é",
  Buffer.from([0xe2]),
  Buffer.from([0x80]),
];

function normalised(pieces: readonly Buffer[]): string {
  const lines = new LineEnds();
  const out = pieces.map((piece) => Buffer.from(lines.feed(piece)));
  return Buffer.concat([...out, lines.end()]).toString("latin1");
}

/** Line ends of an upstream's event stream. */
export const lineEnds: FuzzedParser = {
  name: "sse-lines",
  seeds: ["data: a\r\n\r\ndata: b\r\rdata: c\n\n", "\ufeffdata: x\n\n", "\r\n\r"],
  words: STREAM_WORDS,
  check(bytes, chance) {
    const text = bytes
      .toString("latin1")
      .replace(/^\xef\xbb\xbf/, "")
      .replace(/\r(?!\n)/g, "\n");
    same("at once", normalised([bytes]), text);
    same("in pieces", normalised(inPieces(bytes, chance)), text);
  },
};

async function eventsIn(pieces: readonly Buffer[]): Promise<unknown[]> {
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new Uint8Array(piece));
      controller.close();
    },
  });
  return Array.fromAsync(sseEvents(stream));
}

/** The client's reader. */
export const events: FuzzedParser = {
  name: "sse-client",
  seeds: [
    "id: 1\ndata: {}\n\n",
    "data: a\r\ndata: b\r\n\r\n: keep-alive\n\n",
    "id: 2\n\n",
    "data: x\r\rdata: y\r",
  ],
  words: STREAM_WORDS,
  async check(bytes, chance) {
    same("in pieces", await eventsIn(inPieces(bytes, chance)), await eventsIn([bytes]));
  },
};

function linesIn(pieces: readonly Buffer[]): unknown {
  return orRefused([BackendError], () => {
    const lines = new StreamObjects("lines");
    return [...pieces.flatMap((piece) => lines.push(piece)), ...lines.end()];
  });
}

export const ndjson: FuzzedParser = {
  name: "ndjson",
  seeds: [
    '{"message":{"content":"é"},"done":false}\n{"done":true}\n',
    '{"a":1}\r\n\n{"b":2}',
    '{"error":"x"}',
  ],
  words: [...STREAM_WORDS, "{", "}", '"', "null", "\\u"],
  check(bytes, chance) {
    const whole = linesIn([bytes]);
    // What was read before a line that is none is not told where all comes at once.
    same("in pieces", linesIn(inPieces(bytes, chance)), whole);
    if (whole === REFUSED) return;
    const text = new TextDecoder().decode(bytes);
    same(
      "by JSON.parse",
      whole,
      text
        .split("\n")
        .filter((line) => line.trim() !== "")
        .map((line) => JSON.parse(line) as unknown),
    );
  },
};

const BOUNDARY = "b0undary";
const CONTENT_TYPE = `multipart/form-data; boundary=${BOUNDARY}`;
const part = (head: string, value: string) =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; ${head}\r\n\r\n${value}\r\n`;
const END = `--${BOUNDARY}--\r\n`;
const SENT_BOUNDARY = `form-${crypto.randomUUID()}`;
const sentType = `multipart/form-data; boundary=${SENT_BOUNDARY}`;

interface Field {
  name: string;
  isFile: boolean;
  value: string;
}

/** As the runtime's own reader has it, which is what another server may be. */
async function asElsewhere(bytes: Buffer, contentType: string): Promise<Field[]> {
  const form = await new Response(new Uint8Array(bytes), {
    headers: { "content-type": contentType },
  }).formData();
  const entries = [...form.entries()] as [string, string | File][];
  return Promise.all(
    entries.map(async ([name, value]) => ({
      name,
      isFile: typeof value !== "string",
      value: (typeof value === "string"
        ? Buffer.from(value)
        : Buffer.from(await value.arrayBuffer())
      ).toString("latin1"),
    })),
  );
}

export const multipart: FuzzedParser = {
  name: "multipart",
  seeds: [
    part('name="model"', "m") + part('name="n"', "2") + END,
    part('name="file"; filename="a.wav"', "RIFF\r\n--b0\r\n") + END,
    `${part('name="a"', "")}--${BOUNDARY}\r\ncontent-disposition: form-data; name="b"\r\ncontent-type: text/plain\r\n\r\nx\r\n--${BOUNDARY}--`,
    END,
  ],
  words: [
    `--${BOUNDARY}`,
    `\r\n--${BOUNDARY}\r\n`,
    "\r\n\r\n",
    "\r\n",
    "\n",
    'name="model"',
    '; filename="x"',
    "; filename*=UTF-8''x",
    "name=n",
    "content-type: text/plain\r\n",
    "content-disposition: form-data; ",
    '"',
    "\\",
    ";",
    "--",
  ],
  async check(bytes) {
    const parts = orRefused([ServiceError], () => readForm(bytes, CONTENT_TYPE));
    if (parts === REFUSED) return;
    const fields = parts.map(({ name, file, value }): Field => {
      holds("no boundary inside a value", !value.includes(`--${BOUNDARY}`));
      return { name, isFile: file !== null, value: value.toString("latin1") };
    });
    const sent = Buffer.concat(writeForm(parts, SENT_BOUNDARY));
    same("as another server reads it", await asElsewhere(sent, sentType), fields);
  },
};

/** The operator's file of prices, which may be half written. */
export const pricing: FuzzedParser = {
  name: "pricing",
  seeds: [
    '{"prices":[{"match":"m","input":1,"output":2.5,"max_output_tokens":10}],"usd_per":{"EUR":1.1}}',
    '{"prices":[{"match":"p","per_image":{"1024x1024":0.1,"hd/512x512":1}},{"match":"s","per_second":0.001}]}',
    "{}",
  ],
  words: ["-1", "1e9", "1e400", "null", '"match"', '"__proto__"', "[]", "{}", '"hd"', ",", '"'],
  check(bytes) {
    const path = join(tmpdir(), `fuzz-prices-${process.pid}.json`);
    writeFileSync(path, bytes);
    let read: ReturnType<typeof readPricingFile>;
    try {
      read = readPricingFile(path);
    } catch (error) {
      holds("a refusal names the file", (error as Error).message.includes(path));
      return;
    } finally {
      rmSync(path, { force: true });
    }
    for (const price of read.prices)
      for (const figure of [price.input, price.output, price.per_second, price.per_call])
        holds("a price is no debt", figure === undefined || (Number.isFinite(figure) && figure >= 0));
    for (const usd of read.usdPer.values()) holds("a rate is above nothing", usd > 0 && Number.isFinite(usd));
  },
};
