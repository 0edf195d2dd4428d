import {
  isEventStream,
  isJsonType,
  JSON_TYPE,
  mediaTypeOf,
  Reply,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "@model-gateway/wire/http";
import { type Answer, type BackendConfig, BackendError } from "../../../backends/contract.ts";
import { fail, failField, toServiceError } from "../../../kernel/errors.ts";
import { isObject, jsonIn } from "../../../kernel/json.ts";
import { unknownIn } from "../../../kernel/known-fields.ts";
import { hideSecrets, hideSecretsIn } from "../../../kernel/secrets.ts";
import { LARGE_BODY_BYTES, nextTurn } from "../../../kernel/turns.ts";
import { AnswerBody, readAnswer } from "../call/answer.ts";
import type { CallEnd, Made } from "../call/cost.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import { type Asker, type CallParts, type Client, UpstreamCall } from "../call/upstream-call.ts";
import { joinedUsage, largestUsage, type UsageReport, usageOfTail, usagesIn } from "../call/usage-tail.ts";
import { readWorkFields } from "../request/fields.ts";
import { Payload } from "../request/payload.ts";
import { EventLines, type EventReader, textOfBytes, type Verdict } from "../stream/event-lines.ts";
import { Relay, type StreamReader } from "../stream/relay.ts";
import { FormPayload, isFormType } from "./form.ts";
import type { WorkKind } from "./kinds.ts";

/** Content types that pass. An upstream's HTML or script must not be served from the gateway's origin. */
const PASSED_TYPE =
  /^(audio\/.*|image\/(?!svg).*|text\/(plain|vtt|event-stream)|application\/(json|octet-stream|x-subrip))$/;
const UNKNOWN_TYPE = "application/octet-stream";
/** More than is shown of an error, so that no key is cut in half and missed by the redaction. */
const ERROR_BYTES_MAX = 16 * 1024;

interface Request {
  kind: WorkKind;
  asker: Asker;
  body: Buffer;
  contentType: string | null;
  client: Client;
}

async function payloadOf({ kind, body, contentType }: Request): Promise<Payload> {
  const isForm = isFormType(contentType);
  if (isForm ? kind.form === "never" : kind.form === "required") {
    const type = isForm ? JSON_TYPE : "multipart/form-data";
    fail("unsupported_media_type", `POST /v1${kind.path} takes ${type}`);
  }
  return isForm ? new FormPayload(body, contentType) : Payload.read(body);
}

/** Refuses fields unknown to both the kind of work and the operator: they could multiply the price. */
function requireKnown(
  { body, files = [] }: WorkKind,
  payload: Payload,
  { fields = [] }: BackendConfig,
): void {
  const known = Object.keys(body.shape);
  const unknown = unknownIn(payload.sentNames(), [...known, ...fields]);
  if (unknown) failField(unknown.name, unknown.why);
  if (!(payload instanceof FormPayload)) return;
  for (const { name } of payload.files)
    if (known.includes(name) && !files.includes(name)) failField(name, "must be a text, not a file");
}

/** One piece of work: admitted at its maximum cost, charged for what came back. */
export async function serveWork(parts: CallParts, request: Request): Promise<Reply | StreamedReply> {
  const { kind, asker, client } = request;
  const payload = await payloadOf(request);
  const fields = readWorkFields(payload);
  const asked = await kind.read(payload);
  const call = await UpstreamCall.admit(parts, {
    asker,
    payload,
    capability: kind.capability,
    ...fields,
    work: asked,
    requireOn: ({ backend }) => requireKnown(kind, payload, backend.config),
    contentType: payload instanceof FormPayload ? payload.contentType : kind.isStreamed && JSON_TYPE,
    send: (backend, upstream) => backend.post?.(kind.path, upstream),
  });
  client.whenGone(() => call.watched.abort(CLIENT_LEFT));
  return call.untilAnswered(() => answered(call, kind));
}

async function answered(call: UpstreamCall, kind: WorkKind): Promise<Reply | StreamedReply> {
  const answer = await call.send();
  const type = typeOf(answer);
  const isEvents = isEventStream(type);
  const isJson = isJsonType(answer.contentType);
  const { requestId } = call.options.asker;
  const head = () => ({ status: 200, contentType: type, requestId, headers: call.answerHeaders() });
  if ((kind.isStreamed || isEvents) && !isJson) {
    call.begun();
    return new StreamedReply(head(), new WorkStream(call, answer, { kind, isEvents }));
  }
  const bytes = await readAnswer(answer);
  // Joining the pieces took this turn's time.
  if (bytes.length > LARGE_BODY_BYTES) await nextTurn();
  const body = new AnswerBody(bytes);
  await body.skim();
  // If sound was requested, a JSON answer is an error, whatever its status.
  if (kind.isStreamed)
    throw new BackendError("upstream", bytes.toString("utf8", 0, ERROR_BYTES_MAX) || "an empty answer", 500);
  const isReport = !call.options.work?.isWords || isJson;
  const made = isReport ? kind.made(body) : {};
  call.begun();
  call.route.succeeded();
  call.settle({ isWhole: true, reported: isReport ? usageOfTail(body) : null, delivered: 1, made });
  return new Reply(head(), body.bytes);
}

function typeOf({ contentType }: Answer): string {
  const type = mediaTypeOf(contentType);
  if (type.includes("html")) throw new BackendError("transport", `the upstream answered with ${contentType}`);
  return PASSED_TYPE.test(type) ? contentType : UNKNOWN_TYPE;
}

/** Usage is at the end of an event, behind what may be a large image; the event's type is at the beginning. */
const TAIL_BYTES = 16 * 1024;
const HEAD_BYTES = 256;
const IS_COMPLETED = /^data:.*"type"\s*:\s*"[^"]*\.completed"/;
const LF = 10;
/** A longer line is an image or a sound, not an error. */
const ERROR_LINE_BYTES_MAX = 16 * 1024;
const NOTHING: Buffer = Buffer.alloc(0);

function failureIn(event: unknown): string | null {
  if (!isObject(event)) return null;
  const { type, error, message } = event;
  if (type !== "error" && !isObject(error) && typeof error !== "string") return null;
  const words = isObject(error) ? error.message : (error ?? message);
  return typeof words === "string" ? words : "the upstream reported an error";
}

/**
 * Relays sound or events and reads the usage near the end. The upstream's secrets are removed from error messages of
 * an event stream.
 */
class WorkPieces implements StreamReader, EventReader {
  readonly done = false;
  readonly failure = null;
  readonly tokens = 0;
  readonly atBoundary = false;
  textBytes = 0;
  /** The error that an event reported to the client; null if there was none. */
  reportedError: string | null = null;
  /** Whether something came that is not an error. */
  #hasContent: boolean;
  #head = "";
  #tail = NOTHING;
  #reported: UsageReport = null;
  #made: Made = {};
  /** Number of completed images; each reports its own usage. */
  #completed = 0;
  readonly #isWords: boolean;
  readonly #lines: EventLines | null;

  constructor(
    readonly kind: WorkKind,
    { isEvents, isWords = false }: { isEvents: boolean; isWords?: boolean },
    readonly begun: () => void,
  ) {
    this.#isWords = isWords;
    this.#lines = isEvents ? new EventLines(this) : null;
    this.#hasContent = !isEvents;
  }

  feed(bytes: Uint8Array): Uint8Array | null {
    if (this.textBytes === 0) this.begun();
    this.textBytes += bytes.length;
    if (!this.#lines) return bytes;
    let from = 0;
    for (let end = bytes.indexOf(LF); end !== -1; end = bytes.indexOf(LF, from)) {
      this.#keep(bytes.subarray(from, end));
      this.#ended();
      from = end + 1;
    }
    this.#keep(bytes.subarray(from));
    return this.#lines.feed(bytes);
  }

  #keep(part: Uint8Array): void {
    this.#head += textOfBytes(part, "latin1", 0, HEAD_BYTES - this.#head.length);
    this.#tail = Buffer.concat([this.#tail, part.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
  }

  /** Reads the line that just ended. */
  #ended(): void {
    const tail = this.#tail.toString("latin1");
    // Some servers send a transcript's bare words as events.
    const usages = this.#isWords ? [] : usagesIn(tail);
    const usage = largestUsage(usages);
    for (const each of usages) {
      const made = this.kind.madeIn?.({ usage: each });
      const isLess = (made?.counts?.second ?? 0) < (this.#made.counts?.second ?? 0);
      if (!isLess) this.#made = made?.counts ? made : { ...this.#made, ...made };
    }
    const isAnother = IS_COMPLETED.test(this.#head + tail) && ++this.#completed > 1;
    if (usage !== null) this.#reported = joinedUsage(this.#reported, usage, isAnother);
    this.#head = "";
    this.#tail = NOTHING;
  }

  line(bytes: Uint8Array, _: string, from: number, end: number): Verdict {
    if (end - from <= ERROR_LINE_BYTES_MAX) return this.#redacted(textOfBytes(bytes, "utf8", from, end));
    this.#hasContent = true;
    return "keep";
  }

  /** An error's message is a string inside JSON, where secrets are escaped once more. */
  #redacted(data: string): Verdict {
    const value = jsonIn(data);
    const failure = failureIn(value);
    const redacted = value === undefined ? hideSecrets(data) : JSON.stringify(hideSecretsIn(value));
    const isSame = redacted === data || (value !== undefined && redacted === JSON.stringify(value));
    this.reportedError ??= failure && hideSecrets(failure);
    this.#hasContent ||= failure === null;
    return isSame ? "keep" : { replacement: `data: ${redacted}` };
  }

  /** Lines are read one by one. */
  event(): "drop" {
    return "drop";
  }
  unread(): void {
    this.#hasContent = true;
  }
  broke(): void {}

  flush(): Uint8Array | null {
    return this.#lines?.flush() ?? null;
  }

  get complete(): boolean {
    return this.textBytes > 0;
  }

  end(isWhole: boolean): CallEnd {
    this.#ended();
    const delivered = this.complete && this.#hasContent ? 1 : 0;
    const counts = { image: this.#completed, call: this.#completed };
    const made = this.#completed > 0 ? { counts, ...this.#made } : this.#made;
    return { isWhole, reported: this.#reported, delivered, made };
  }
}

/** Sends a sound or an event stream to the client. Settled before its end is sent. */
export class WorkStream implements ReplySource {
  readonly #pieces: WorkPieces;
  readonly #relay: Relay;
  #isRunning = false;

  constructor(
    readonly call: UpstreamCall,
    answer: Answer,
    { kind, isEvents }: { kind: WorkKind; isEvents: boolean },
  ) {
    const { watched, observed } = call;
    const isWords = call.options.work?.isWords;
    this.#pieces = new WorkPieces(kind, { isEvents, isWords }, () => observed.firstChunk());
    this.#relay = new Relay(answer, this.#pieces, watched);
  }

  begin(writer: ReplyWriter): void {
    this.#isRunning = true;
    void this.#run(writer);
  }

  async #run(writer: ReplyWriter): Promise<void> {
    const { call } = this;
    const ending = await this.#relay.run(writer);
    if (ending.kind !== "complete") {
      this.#broke(ending.kind === "cut" ? ending.error : call.watched.reason);
      writer.terminate();
      return;
    }
    const { reportedError } = this.#pieces;
    if (reportedError === null) call.route.succeeded();
    else call.failed(new BackendError("upstream", reportedError, 500));
    call.settle(this.#pieces.end(reportedError === null));
    writer.end();
  }

  #broke(error: unknown): void {
    const { call } = this;
    call.failed(error);
    call.settle(this.#pieces.end(false));
    // Settling has already ended the record if something was delivered or the client left.
    call.options.asker.record?.refused(toServiceError(call.toClientError(error)));
  }

  drained(): void {
    this.#relay.drained();
  }

  left(): void {
    this.call.watched.abort(CLIENT_LEFT);
    if (!this.#isRunning) this.#broke(CLIENT_LEFT);
  }
}
