import {
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  JSON_TYPE,
  Reply,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "@model-gateway/wire/http";
import type { Clock } from "../../../kernel/clock.ts";
import { type ServiceError, toRestBody, toServiceError } from "../../../kernel/errors.ts";
import type { WholeAnswer } from "../call/answer.ts";
import { KEEP_ALIVE } from "../stream/relay.ts";
import type { ChatTurn } from "../turn/chat-turn.ts";
import { readAnswer } from "./chat-answer.ts";
import { SpokenStream } from "./spoken-stream.ts";
import type { Failure, NativeRead, ReadRequest, Voice } from "./voice.ts";

/** How an API's replies differ from the gateway's own, apart from their bodies. */
export type Form = Pick<Voice, "keyHeader" | "requestIdHeader" | "errorBody" | "wrapsUpstreamErrors">;

/** Header of an answer that was limited because the payer cannot cover more. */
const LOWERED_HEADER = "x-service-max-tokens";

const idHeader = ({ requestIdHeader }: Form, requestId: string): Readonly<Record<string, string>> =>
  requestIdHeader ? { [requestIdHeader]: requestId } : {};

export function refusalIn(form: Form, { head, body }: Reply, failure: Failure): Reply {
  const { requestId } = head;
  const headers = { ...head.headers, ...idHeader(form, requestId) };
  if (!form.errorBody) return new Reply({ ...head, headers }, body);
  const json = JSON.stringify(form.errorBody(failure, requestId));
  return new Reply({ ...head, contentType: JSON_TYPE, headers }, json);
}

export const jsonReplyIn = (form: Form, body: object, requestId: string): Reply =>
  new Reply(
    { status: 200, contentType: JSON_TYPE, requestId, headers: idHeader(form, requestId) },
    JSON.stringify(body),
  );

export interface ReplyOptions {
  clock: Clock;
  /** A failure as clients of the API see it. */
  toClientError(form: Form, failure: ServiceError): ServiceError;
}

/** Builds the reply to one request that a voice has read. */
export class VoicedReply {
  #listener?: SpokenStream;
  #translated?: ReadRequest;

  constructor(
    readonly form: Form,
    readonly read: ReadRequest | NativeRead,
    readonly requestId: string,
    readonly options: ReplyOptions,
  ) {}

  get chat(): ReadRequest {
    this.#translated ??= "translated" in this.read ? this.read.translated() : this.read;
    return this.#translated;
  }

  /** The listener of a streamed answer, unless the upstream's bytes are relayed. */
  readonly listener = (): SpokenStream | undefined => {
    const { speaker, payload } = this.chat;
    if (speaker && payload.value("stream") === true)
      this.#listener ??= new SpokenStream(speaker, this.options.clock);
    return this.#listener;
  };

  to(turn: ChatTurn): Promise<Reply | StreamedReply> {
    return turn.fields.stream ? this.#stream(turn) : turn.answer(this);
  }

  whole(turn: ChatTurn, answer: WholeAnswer): Reply {
    const { requestId } = this;
    const body = turn.spoken
      ? answer.body.bytes
      : (this.chat.speaker?.whole(readAnswer(answer)) ?? answer.bytes());
    const headers = this.#headers(turn, {});
    return new Reply({ status: 200, contentType: JSON_TYPE, requestId, headers }, body);
  }

  async #stream(turn: ChatTurn): Promise<StreamedReply> {
    const { requestId } = this;
    const beginning = turn.begin();
    const isLate = await isLateToBegin(turn, beginning);
    const contentType = (turn.spoken ? null : this.chat.speaker?.contentType) ?? EVENT_STREAM_TYPE;
    const headers = this.#headers(turn, EVENT_STREAM_HEADERS, { isLate });
    const source = new TurnSource(turn, this, isLate ? beginning : null);
    return new StreamedReply({ status: 200, contentType, requestId, headers }, source);
  }

  #headers(
    { call, spoken, nativeHeaders }: ChatTurn,
    plain: Readonly<Record<string, string>>,
    { isLate = false } = {},
  ): Readonly<Record<string, string>> {
    const { form, requestId } = this;
    // If the first backend is this slow, another one may still be tried.
    const base = isLate ? plain : call.answerHeaders(plain);
    const own = spoken ? nativeHeaders : this.chat.headers;
    if (call.outgoing.loweredTo === null && !own && !form.requestIdHeader) return base;
    const headers: Record<string, string> = { ...base, ...own, ...idHeader(form, requestId) };
    if (call.outgoing.loweredTo !== null) headers[LOWERED_HEADER] = String(call.outgoing.loweredTo);
    return headers;
  }
}

/** Resolves to true if the upstream is silent for so long that the client needs a sign of life; throws on failure. */
function isLateToBegin({ call }: ChatTurn, beginning: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve, reject) => {
    call.watched.onSilence = () => resolve(true);
    beginning.then(() => resolve(false), reject);
  });
}

/** Streams a turn's answer to the client. */
class TurnSource implements ReplySource {
  constructor(
    readonly turn: ChatTurn,
    readonly reply: VoicedReply,
    /** Set if the reply was sent before the upstream began. */
    readonly beginning: Promise<unknown> | null,
  ) {}

  begin(writer: ReplyWriter): void {
    // A failure has already been written to the stream.
    if (this.beginning) this.#beginLate(writer, this.beginning).catch(() => {});
    else this.turn.run(this.#sinkOf(writer)).catch(() => {});
  }

  #sinkOf(writer: ReplyWriter): SpokenStream | ReplyWriter {
    const listener = this.turn.spoken ? undefined : this.reply.listener();
    listener?.writeTo(writer);
    return listener ?? writer;
  }

  async #beginLate(writer: ReplyWriter, beginning: Promise<unknown>): Promise<void> {
    const { turn, reply } = this;
    const before = this.#sinkOf(writer);
    const isEventStream = turn.spoken || !reply.chat.speaker?.contentType;
    const ping = () => {
      const percent = turn.call.route.backend.loadedPercent?.() ?? null;
      if (percent !== null && isEventStream) writer.write(`: loading ${Math.round(percent)} %\n\n`);
      else if ("keepAlive" in before) before.keepAlive();
      else writer.write(KEEP_ALIVE);
    };
    turn.call.watched.onSilence = ping;
    ping();
    try {
      await beginning;
    } catch (error) {
      const refusal = toServiceError(error);
      turn.options.asker.record?.refused(refusal);
      const failure = reply.options.toClientError(reply.form, refusal);
      const sink = this.#sinkOf(writer);
      if ("error" in sink) sink.error(failure);
      const reader = turn.spoken?.reader();
      sink.end(
        Buffer.from(reader?.failed(failure.message) ?? `data: ${JSON.stringify(toRestBody(failure))}\n\n`),
      );
      return;
    }
    await turn.run(this.#sinkOf(writer));
  }
  drained(): void {
    this.turn.drained();
  }
  left(): void {
    this.turn.left();
  }
}
