import { bearerOf, type HttpRequest, Reply } from "@model-gateway/wire/http";
import { type ServerSocket, webSocketHandshake } from "@model-gateway/wire/websocket";
import type { CallSource, Principal } from "../../kernel/context.ts";
import { ServiceError, toRestBody, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { TooManyKeys } from "../../kernel/failed-tries.ts";
import type { Ids } from "../../kernel/ids.ts";
import { isObject, readJsonText } from "../../kernel/json.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import { MODEL_ID_LENGTH_MAX } from "../../kernel/request-row.ts";
import type { Gate } from "../rest/runner.ts";
import type { SocketTransport } from "../server.ts";

const TEXT_TYPE = "text/plain; charset=utf-8";
/** How browsers send a key, since they cannot set headers. */
const KEY_PROTOCOL = "openai-insecure-api-key.";
/** Of OpenAI's query: sessions for transcription alone, and calls that were begun elsewhere. */
const NOT_SERVED = ["intent", "call_id"];
/** Events of the upstream that are kept until the client's socket is open. */
const EARLY_EVENTS_MAX = 64;
const REASON_BYTES_MAX = 120;
const NORMAL = 1000;
const POLICY_VIOLATION = 1008;

/** The events that clients may send. Others do not pass, because the session's cost would be unknown. */
const CLIENT_EVENTS: ReadonlySet<unknown> = new Set(
  (
    "session.update input_audio_buffer.append input_audio_buffer.commit input_audio_buffer.clear " +
    "output_audio_buffer.clear conversation.item.create conversation.item.retrieve " +
    "conversation.item.truncate conversation.item.delete response.create response.cancel"
  ).split(" "),
);

type Event = Record<string, unknown>;
interface End {
  reason: string;
  code?: string;
}

interface RealtimeDesk {
  openSocket(
    holder: () => Principal | Promise<Principal>,
    options: {
      model: string;
      record: RequestRecord | null;
      listener: { event(event: Event): void; ended(end: End): void };
    },
  ): Promise<{ send(event: Event): Promise<void>; close(): void }>;
}

class Carried {
  session: { send(event: Event): Promise<void>; close(): void } | null = null;
  #socket: VoiceSocket | null = null;
  #early: Event[] = [];
  #end: End | null = null;
  #reading: Promise<unknown> = Promise.resolve();

  constructor(readonly ids: Ids) {}

  /** Parses the messages in their order: a large one takes several turns of the event loop. */
  read(message: string): Promise<unknown> {
    const reading = this.#reading.then(() => readJsonText(message));
    this.#reading = reading.catch(() => {});
    return reading;
  }

  event(event: Event): void {
    if (!this.#socket) {
      if (this.#early.length < EARLY_EVENTS_MAX) this.#early.push(event);
      return;
    }
    if (this.#socket.sendText(JSON.stringify(event)) > 0) return;
    this.#socket.close(POLICY_VIOLATION, "events are not being read");
    this.session?.close();
  }

  ended(end: End): void {
    this.#end ??= end;
    const socket = this.#socket;
    if (!socket) return;
    const { reason, code } = this.#end;
    if (code) this.refuse(new ServiceError("app_error", reason, { rest: { code } }), null);
    socket.close(code ? POLICY_VIOLATION : NORMAL, shortened(reason));
  }

  attach(socket: VoiceSocket): void {
    this.#socket = socket;
    for (const event of this.#early.splice(0)) this.event(event);
    if (this.#end) this.ended(this.#end);
  }

  refuse(error: unknown, eventId: unknown): void {
    const { error: details } = toRestBody(toServiceError(error));
    const about = typeof eventId === "string" ? eventId : null;
    this.event({
      type: "error",
      event_id: `event_${this.ids.uuid()}`,
      error: { param: null, ...details, event_id: about },
    });
  }
}

type VoiceSocket = ServerSocket<Carried>;

const shortened = (reason: string): string =>
  new TextDecoder().decode(Buffer.from(reason).subarray(0, REASON_BYTES_MAX), { stream: true });

/** `GET /v1/realtime` for OpenAI's clients: one voice session per WebSocket. */
export class RealtimeSocket implements SocketTransport<Carried> {
  readonly path = "/v1/realtime";
  readonly protocol = "realtime";

  constructor(
    readonly options: {
      desk: RealtimeDesk;
      gate: Gate;
      ids: Ids;
      record(surface: string, requestId: string): RequestRecord | null;
    },
  ) {}

  /** Everything that can fail does so before the upgrade, with a status that clients show. */
  async admit(request: HttpRequest, query: URLSearchParams, { ip }: CallSource): Promise<Carried | Reply> {
    const { desk, gate, ids } = this.options;
    const requestId = ids.ordered();
    const record = this.options.record(this.path, requestId);
    try {
      const secret = bearerOf(request) ?? keyOffered(request);
      await gate.keyHolder(secret, { request, record, caller: { ip } });
      const model = query.get("model") ?? "";
      if (model === "" || model.length > MODEL_ID_LENGTH_MAX)
        throw new ServiceError("missing_fields", "`model` is required in the query: /v1/realtime?model=…");
      const other = NOT_SERVED.find((name) => query.has(name));
      if (other)
        throw new ServiceError(
          "invalid_params",
          `\`${other}\` is not supported: a session is opened by \`model\``,
        );
      const refusal = handshakeRefusal(request, requestId);
      if (refusal) {
        record?.end(refusal.head.status);
        return refusal;
      }
      const carried = new Carried(ids);
      const holder = () => gate.stillHolder(secret);
      const session = await desk.openSocket(holder, { model, record, listener: carried });
      carried.session = session;
      request.whenGone(() => session.close());
      return carried;
    } catch (error) {
      const failure = toServiceError(error);
      const reply = toRestReply(failure, requestId);
      record?.addDetails({ clientIp: ip });
      if (!(failure instanceof TooManyKeys)) record?.refused(failure, reply.head.status);
      return reply;
    }
  }

  open(socket: VoiceSocket): void {
    socket.data.attach(socket);
  }

  async message({ data }: VoiceSocket, message: string | Buffer): Promise<void> {
    let event: unknown = null;
    try {
      event = await data.read(String(message));
      requirePassing(event);
      await data.session?.send(event);
    } catch (error) {
      data.refuse(error, isObject(event) ? event.event_id : null);
    }
  }

  close({ data }: VoiceSocket): void {
    data.session?.close();
  }
}

function requirePassing(event: unknown): asserts event is Event {
  if (!isObject(event))
    throw new ServiceError("invalid_request", "Each message must be a JSON object with a `type`");
  if (!CLIENT_EVENTS.has(event.type))
    throw new ServiceError("missing_fields", `\`type\` must be one of ${[...CLIENT_EVENTS].join(", ")}`);
}

function keyOffered(request: HttpRequest): string | null {
  const offered = request.header("sec-websocket-protocol")?.split(",") ?? [];
  const found = offered.map((each) => each.trim()).find((each) => each.startsWith(KEY_PROTOCOL));
  return found?.slice(KEY_PROTOCOL.length) ?? null;
}

/** A session is opened only for a request that becomes a WebSocket. */
function handshakeRefusal(request: HttpRequest, requestId: string): Reply | null {
  const shaken = webSocketHandshake(request);
  if (shaken?.accepted) return null;
  const { status, headers, text } = shaken ?? {
    status: 426,
    headers: { upgrade: "websocket" },
    text: "Expected a WebSocket upgrade\n",
  };
  return new Reply({ status, contentType: TEXT_TYPE, requestId, headers }, text);
}
