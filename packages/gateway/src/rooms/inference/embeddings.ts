import { JSON_TYPE, Reply } from "@model-gateway/wire/http";
import { BackendError } from "../../backends/contract.ts";
import { AnswerBody, readAnswer, requireList } from "./call/answer-body.ts";
import { answerHeaders } from "./call/answer-headers.ts";
import { completeEmbeddings } from "./call/answer-shape.ts";
import { CLIENT_LEFT } from "./call/deadlines.ts";
import { toFailure } from "./call/failures.ts";
import { type Asker, type CallParts, UpstreamCall } from "./call/upstream-call.ts";
import { ABSURD, usageOfTail } from "./call/usage-tail.ts";
import { readEmbeddingsFields } from "./request/fields.ts";
import type { Payload } from "./request/payload.ts";
import type { Client } from "./turn/chat-turn.ts";

const NO_HEADERS: Readonly<Record<string, string>> = {};
const HEAD_BYTES = 4 * 1024;
const GIVEN_BACK_FROM_BYTES = 64 * 1024;

/** One embeddings request; the answer passes as bytes unless the upstream chose the wrong encoding. */
export async function embed(
  parts: CallParts,
  { asker, payload, client }: { asker: Asker; payload: Payload; client: Client },
): Promise<Reply> {
  const { model, provider, encoding } = readEmbeddingsFields(payload);
  const admitting = UpstreamCall.admit(parts, {
    asker,
    payload,
    capability: "embeddings",
    model,
    provider,
    send: (backend, upstream) => backend.embed?.(upstream),
  });
  const call = admitting instanceof Promise ? await admitting : admitting;
  client.whenGone(() => call.watched.abort(CLIENT_LEFT));
  for (;;) {
    try {
      return await embedOnce(call, { asker, encoding });
    } catch (error) {
      const failure = await call.fallBack(error);
      if (failure === null) continue;
      call.settle();
      throw toFailure(failure);
    }
  }
}

async function embedOnce(
  call: UpstreamCall,
  { asker, encoding }: { asker: Asker; encoding: "float" | "base64" },
): Promise<Reply> {
  const body = new AnswerBody(await readAnswer(await call.send()));
  const reported = usageOfTail(body);
  requireList(body, { list: "data", endsProperly: reported !== null });
  const actual = encodingOfAnswer(body.bytes);
  const encoded =
    actual === null || actual === encoding ? body : new AnswerBody(reencode(body.bytes, encoding));
  call.begun();
  call.route.succeeded();
  // Vectors have no tokens of their own; that something came is what counts.
  const owed = call.settle({ isWhole: true, reported, delivered: 1 });
  const isReported = reported !== null && reported !== ABSURD;
  const parts = completeEmbeddings(encoded, call.route.model, { isReported, owed });
  const headers = answerHeaders(call, NO_HEADERS);
  const head = { status: 200, contentType: JSON_TYPE, requestId: asker.requestId, headers };
  return new Reply(head, parts, () => giveBack(body.bytes));
}

/** Vectors are half a megabyte that the collector would see only much later. Nobody else has these bytes. */
function giveBack({ buffer, length }: Buffer): void {
  const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === length;
  if (isWhole && length >= GIVEN_BACK_FROM_BYTES) buffer.transfer(0);
}

/** What the first vector looks like; null when there is none. */
function encodingOfAnswer(body: Buffer): "float" | "base64" | null {
  const first = /"embedding"\s*:\s*(\[|")/.exec(body.toString("latin1", 0, HEAD_BYTES));
  return first ? (first[1] === "[" ? "float" : "base64") : null;
}

interface EmbeddingsBody {
  data: { embedding: number[] | string }[];
}

/** Little-endian float32 in base64, or numbers: converts to the form that the client asked for. */
function reencode(body: Buffer, encoding: "float" | "base64"): Buffer {
  try {
    return reencoded(JSON.parse(body.toString()) as EmbeddingsBody, encoding);
  } catch {
    throw new BackendError("transport", "the upstream answered with vectors that cannot be read");
  }
}

function reencoded(parsed: EmbeddingsBody, encoding: "float" | "base64"): Buffer {
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
}
