import { JSON_TYPE, Reply } from "@model-gateway/wire/http";
import { BackendError } from "../../backends/contract.ts";
import { isObject } from "../../kernel/json.ts";
import { AnswerBody, completeEmbeddings, readAnswer, requireList } from "./call/answer.ts";
import { CLIENT_LEFT } from "./call/deadlines.ts";
import { type Asker, type CallParts, type Client, UpstreamCall } from "./call/upstream-call.ts";
import { ABSURD, type ReportedUsage, usageOfTail } from "./call/usage-tail.ts";
import { readEmbeddingsFields } from "./request/fields.ts";
import type { Payload } from "./request/payload.ts";
import { askedOf } from "./turn/turn-record.ts";

const HEAD_BYTES = 4 * 1024;
const GIVEN_BACK_FROM_BYTES = 64 * 1024;

export interface ReadEmbeddings {
  payload: Payload;
  /** Writes the body in the API's own form, from the list and its usage; absent: the list passes as bytes. */
  write?(list: EmbeddingsBody, usage: ReportedUsage | null): object;
}

/** One embeddings request. The answer passes as bytes unless the upstream used the wrong encoding. */
export async function embed(
  parts: CallParts,
  { asker, payload, write, client }: ReadEmbeddings & { asker: Asker; client: Client },
): Promise<Reply> {
  const { encoding, ...fields } = readEmbeddingsFields(payload);
  const capture = asker.record?.details.capture;
  if (capture) capture.asked = askedOf(payload);
  const call = await UpstreamCall.admit(parts, {
    asker,
    payload,
    capability: "embeddings",
    ...fields,
    send: (backend, upstream) => backend.embed?.(upstream),
  });
  client.whenGone(() => call.watched.abort(CLIENT_LEFT));
  return call.untilAnswered(() => embedOnce(call, { asker, encoding, write }));
}

async function embedOnce(
  call: UpstreamCall,
  { asker, encoding, write }: Pick<ReadEmbeddings, "write"> & { asker: Asker; encoding: "float" | "base64" },
): Promise<Reply> {
  const body = new AnswerBody(await readAnswer(await call.send()));
  const reported = usageOfTail(body);
  requireList(body, { list: "data", endsProperly: reported !== null });
  const actual = encodingOfAnswer(body);
  const encoded =
    actual === null || actual === encoding ? body : new AnswerBody(reencode(body.bytes, encoding));
  const list = write ? listOf(encoded.bytes) : null;
  call.begun();
  call.route.succeeded();
  // Vectors have no output tokens; `delivered: 1` says that an answer came.
  const owed = call.settle({ isWhole: true, reported, delivered: 1 });
  const isReported = reported !== null && reported !== ABSURD;
  const headers = call.answerHeaders();
  const head = { status: 200, contentType: JSON_TYPE, requestId: asker.requestId, headers };
  if (write && list) return new Reply(head, JSON.stringify(write(list, owed)));
  const parts = completeEmbeddings(encoded, call.route.model, { isReported, owed });
  return new Reply(head, parts, () => giveBack(body.bytes));
}

/** Frees the half megabyte of vectors now; the garbage collector would take much longer. Nobody else has these bytes. */
function giveBack({ buffer, length }: Buffer): void {
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === length;
  if (isWhole && length >= GIVEN_BACK_FROM_BYTES) buffer.transfer(0);
}

/** The encoding of the first vector; null if there is none. */
function encodingOfAnswer({ bytes }: AnswerBody): "float" | "base64" | null {
  const first = /"embedding"\s*:\s*(\[|")/.exec(bytes.toString("latin1", 0, HEAD_BYTES));
  if (first) return first[1] === "[" ? "float" : "base64";
  // It comes late in the answer, or its name is spelled with escapes.
  const vector = listOf(bytes).data[0]?.embedding;
  return Array.isArray(vector) ? "float" : typeof vector === "string" ? "base64" : null;
}

type EmbeddingsBody = { data: { embedding: number[] | string }[] };

const UNREADABLE = "the upstream answered with vectors that cannot be read";

function listOf(body: Buffer): EmbeddingsBody {
  try {
    const { data } = JSON.parse(body.toString()) as { data: unknown[] };
    return { data: data.filter(isObject) as EmbeddingsBody["data"] };
  } catch {
    throw new BackendError("transport", UNREADABLE);
  }
}

/** Converts between numbers and base64 of little-endian float32. */
function reencode(body: Buffer, encoding: "float" | "base64"): Buffer {
  try {
    const parsed = JSON.parse(body.toString()) as EmbeddingsBody;
    for (const item of parsed.data) {
      const { embedding } = item;
      if (encoding === "base64" && Array.isArray(embedding)) {
        item.embedding = Buffer.from(new Float32Array(embedding).buffer).toString("base64");
      } else if (encoding === "float" && typeof embedding === "string") {
        const bytes = Uint8Array.fromBase64(embedding);
        item.embedding = [...new Float32Array(bytes.buffer, 0, Math.floor(bytes.length / 4))];
      }
    }
    return Buffer.from(JSON.stringify(parsed));
  } catch {
    throw new BackendError("transport", UNREADABLE);
  }
}
