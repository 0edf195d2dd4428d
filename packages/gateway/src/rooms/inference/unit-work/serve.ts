import { JSON_TYPE, Reply, StreamedReply } from "@model-gateway/wire/http";
import { type Answer, type BackendConfig, BackendError } from "../../../backends/contract.ts";
import { fail, failField } from "../../../kernel/errors.ts";
import { unknownIn } from "../../../kernel/known-fields.ts";
import { LARGE_BODY_BYTES, nextTurn } from "../../../kernel/turns.ts";
import { AnswerBody, readAnswer } from "../call/answer-body.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import { type Asker, type CallParts, type Client, UpstreamCall } from "../call/upstream-call.ts";
import { usageOfTail } from "../call/usage-tail.ts";
import { readWorkFields } from "../request/fields.ts";
import { Payload } from "../request/payload.ts";
import { FormPayload } from "./form-payload.ts";
import type { WorkKind } from "./kind.ts";
import { isFormType } from "./multipart.ts";
import { WorkStream } from "./stream.ts";

/** Content types that pass. An upstream's HTML or script must not be served from the gateway's origin. */
const PASSED_TYPE =
  /^(audio\/|image\/|text\/(plain|vtt|event-stream)|application\/(json|octet-stream|x-subrip))/i;
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
  const { model, provider } = readWorkFields(payload);
  const asked = await kind.read(payload);
  const call = await UpstreamCall.admit(parts, {
    asker,
    payload,
    capability: kind.capability,
    model,
    provider,
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
  const isEvents = type.startsWith("text/event-stream");
  const { requestId } = call.options.asker;
  const head = () => ({ status: 200, contentType: type, requestId, headers: call.answerHeaders() });
  if ((kind.isStreamed || isEvents) && !type.startsWith(JSON_TYPE)) {
    call.begun();
    return new StreamedReply(head(), new WorkStream(call, answer, { isEvents }));
  }
  const bytes = await readAnswer(answer);
  // Joining the pieces took this turn's time.
  if (bytes.length > LARGE_BODY_BYTES) await nextTurn();
  const body = new AnswerBody(bytes);
  await body.skim();
  if (kind.isStreamed) refuseJson(body);
  const isReport = !call.options.work?.isWords || type.startsWith(JSON_TYPE);
  const made = isReport ? kind.made(body) : {};
  call.begun();
  call.route.succeeded();
  call.settle({ isWhole: true, reported: isReport ? usageOfTail(body) : null, delivered: 1, made });
  return new Reply(head(), body.bytes);
}

function typeOf({ contentType }: Answer): string {
  if (contentType.includes("html"))
    throw new BackendError("transport", `the upstream answered with ${contentType}`);
  return PASSED_TYPE.test(contentType) ? contentType : UNKNOWN_TYPE;
}

/** If sound was requested, a JSON answer is an error, whatever its status. */
function refuseJson({ bytes }: AnswerBody): never {
  throw new BackendError("upstream", bytes.toString("utf8", 0, ERROR_BYTES_MAX) || "an empty answer", 500);
}
