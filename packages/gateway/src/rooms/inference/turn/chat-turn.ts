import { isEventStream, isJsonType, mediaTypeOf } from "@model-gateway/wire/http";
import { type Answer, BackendError, type NativeDialect } from "../../../backends/contract.ts";
import type { BoundedMap } from "../../../kernel/bounded.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { type ServiceError, toServiceError } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import type { Log } from "../../../kernel/log.ts";
import type { Capture } from "../../../kernel/request-record.ts";
import type { Conversations } from "../../conversations/index.ts";
import type { Memory } from "../../memory/index.ts";
import { type TokenBound, TokenCounter } from "../../metering/index.ts";
import {
  AnswerBody,
  type AnswerForm,
  type AnswerHead,
  CHAT_FORM,
  readAnswer,
  requireList,
  WholeAnswer,
} from "../call/answer.ts";
import type { CallEnd } from "../call/cost.ts";
import { CLIENT_LEFT } from "../call/deadlines.ts";
import { toFailure } from "../call/failures.ts";
import {
  type Asker,
  type CallParts,
  type Client,
  UpstreamCall,
  type UpstreamCallOptions,
} from "../call/upstream-call.ts";
import { ABSURD, type ReportedUsage, readUsage, type UsageReport, usageOfTail } from "../call/usage-tail.ts";
import { type ChatFields, nativeFields, readChatFields, readCompletionFields } from "../request/fields.ts";
import type { NativeRequest, Payload } from "../request/payload.ts";
import { requireOwnFiles, vendorCallsIn } from "../request/vendor-side.ts";
import {
  type ChatChunk,
  ChatMeter,
  type ChatMeterOptions,
  type Choice,
  countTexts,
} from "../stream/chat-meter.ts";
import { NativeMeter } from "../stream/native-meter.ts";
import { Relay, replayAsStream, type Sink, StreamHold } from "../stream/relay.ts";
import { AnswerCollector, answerOf, askedOf, choicesOf, TurnRecord } from "./turn-record.ts";

/** How long to wait for the usage of a finished answer whose client has left. */
const READ_ON_MS = 2_000;

export interface ChatParts extends CallParts {
  clock: Clock;
  conversations: Conversations;
  memory: Memory;
  log: Log;
  /** Reasoning of answers with calls, by conversation and call; kept in this process only. */
  thoughts: BoundedMap<string, string>;
}

/** Receives a streamed answer: every chunk, then `finish` or `error`. It buffers until `write` or `end`. */
export interface Listener extends Sink {
  /** Throws if the chunk cannot be converted; the answer then ends with an error. */
  chunk(chunk: ChatChunk, choices: readonly Choice[]): void;
  /** `head` is used if no chunk came. */
  finish(settled: ReportedUsage | null, head: AnswerHead): void;
  error(failure: ServiceError): void;
}

export interface ChatTurnOptions {
  asker: Asker;
  payload: Payload;
  client: Client;
  /** The stored conversation goes before the request's messages, and a partial answer is stored too. */
  isConversation: boolean;
  /** Receives a streamed answer as events; absent: the client gets the upstream's own bytes. */
  listener?: () => Listener | undefined;
  form?: AnswerForm;
  /** Set if the payload is in a vendor's dialect. */
  native?: NativeRequest;
}

/** One chat request from admission to settlement, on any surface. */
export class ChatTurn {
  #meter: ChatMeter | NativeMeter | null = null;
  #relay: Relay | null = null;
  #running = false;
  /** Set once the client has left and the upstream is read on for its usage. */
  #cancelReading: (() => void) | null = null;
  #listener: Listener | null = null;
  readonly #form: AnswerForm;
  /** Where prompt and answer are kept for the operator; null for almost all requests. */
  readonly #capture: Capture | null;
  /** Calls of the vendor's own tools, by name. */
  readonly #toolCalls: string[] = [];
  #leaverOwes: ReportedUsage | null | undefined;
  /** The upstream has ended its answer. */
  #hasEnded = false;
  /** Part of the answer was delivered, so it is too late for another backend. */
  #hasDelivered = false;
  /** The upstream's headers that a verbatim answer passes to the client. */
  nativeHeaders: Readonly<Record<string, string>> = {};

  private constructor(
    readonly parts: ChatParts,
    readonly options: ChatTurnOptions,
    readonly fields: ChatFields,
    readonly record: TurnRecord,
    readonly call: UpstreamCall,
  ) {
    this.#form = options.form ?? CHAT_FORM;
    this.#capture = options.asker.record?.details.capture ?? null;
    options.client.whenGone(() => this.left());
  }

  /** Validates, routes and admits, or throws. Nothing is sent yet. */
  static async open(parts: ChatParts, options: ChatTurnOptions): Promise<ChatTurn> {
    const { asker, payload, client, form, native } = options;
    const fields = native
      ? nativeFields(native)
      : form?.isText
        ? readCompletionFields(payload)
        : readChatFields(payload);
    const capture = asker.record?.details.capture;
    if (capture) capture.asked = askedOf(payload);
    const record = new TurnRecord(parts, options, fields);
    if (record.collector) await record.access();
    const { model, provider, spend, stream } = fields;
    const call = await UpstreamCall.admit(parts, {
      asker,
      payload,
      capability: form?.isText ? "text_completion" : "chat",
      model,
      provider,
      boundTo: record.boundTo,
      spend,
      native,
      set: native ? undefined : fieldsToSet(fields, null),
      prepare: record.collector
        ? async () => fieldsToSet(fields, await record.prepare(client.signal))
        : undefined,
      stream,
      limitFields: form?.limitFields,
      requireOn: ({ isOwn, backend }) => isOwn || requireOwnFiles(payload, backend.config),
      send: form?.isText ? sendCompletion : sendChat,
    });
    return new ChatTurn(parts, options, fields, record, call);
  }

  /** The client is gone: stops the upstream at once, unless only its usage is still missing. */
  left(): void {
    const { watched } = this.call;
    const [meter, relay] = [this.#meter, this.#relay];
    if (relay && this.#running && meter?.complete && !this.#isAllTold && !watched.isAborted) {
      relay.unattended();
      this.#cancelReading ??= this.parts.clock.after(READ_ON_MS, () => watched.abort(CLIENT_LEFT));
      return;
    }
    watched.abort(CLIENT_LEFT);
    if (relay && !this.#running) this.#settleLeaver();
  }

  /** Settles for a client that left; says nothing about the backend's health. */
  #settleLeaver(): ReportedUsage | null {
    if (this.#leaverOwes === undefined) {
      this.call.failed(CLIENT_LEFT);
      this.#leaverOwes = this.#settle({ isWhole: this.#isAllTold });
    }
    return this.#leaverOwes;
  }

  /** Whether the usage covers the whole answer. Of several answers, one may end before another begins. */
  get #isAllTold(): boolean {
    const meter = this.#meter;
    if (!meter?.complete || !meter.isUsageFinal) return false;
    const { answers = 1 }: TokenBound = this.call.outgoing.bound;
    return answers === 1 || meter.done || this.#hasEnded;
  }

  /** The dialect in which request and answer pass verbatim; null: they are a chat. */
  get spoken(): NativeDialect | null {
    return this.call.outgoing.spoken;
  }

  get #head(): AnswerHead {
    return {
      id: `${this.#form.idPrefix}${this.options.asker.requestId}`,
      created: Math.floor(this.parts.clock.now() / 1000),
      model: this.call.route.model,
    };
  }

  #settle({ isWhole, isStopped }: Pick<CallEnd, "isWhole" | "isStopped">): ReportedUsage | null {
    const meter = this.#meter;
    if (!meter) return this.call.settle();
    const { reported } = meter;
    // Usage followed by more text is only a running total.
    const isFinal = reported === null || reported === ABSURD || meter.isUsageFinal;
    return this.call.settle({
      ...{ isWhole: isWhole && isFinal, isStopped, reported, delivered: meter.tokens },
      toolCalls: this.#toolCalls,
    });
  }

  async answer<T>(reply: { whole(turn: ChatTurn, answer: WholeAnswer): T }): Promise<T> {
    const { call, record } = this;
    if (record.collector) await this.#storeSent();
    for (;;) {
      let whole: WholeAnswer;
      try {
        const answer = await call.send();
        const body = new AnswerBody(await readAnswer(answer));
        const { spoken } = this;
        this.#noteHeaders(answer, spoken);
        whole = spoken ? this.#wholeNative(body, spoken) : this.#wholeAnswer(body, answer.contentType);
        if (record.collector) await record.completedWith(whole.body, call.route);
      } catch (error) {
        await call.elsewhere(error);
        continue;
      }
      return reply.whole(this, whole);
    }
  }

  #noteHeaders(answer: Answer, spoken: NativeDialect | null): void {
    this.nativeHeaders = (spoken && answer.headersLike?.(spoken.answerHeaders)) ?? {};
  }

  #wholeNative(body: AnswerBody, spoken: NativeDialect): WholeAnswer {
    const { parsed } = body;
    if (!isObject(parsed))
      throw new BackendError("transport", "the upstream answered with something that is not a JSON object");
    const reader = spoken.reader();
    const written = reader.whole(parsed);
    this.#toolCalls.push(...vendorCallsIn(parsed));
    return this.#settledWhole(body, readUsage(reader.usage), {
      tokens: () => tokensOf([written]),
      answer: () => parsed,
    });
  }

  #wholeAnswer(body: AnswerBody, contentType: string): WholeAnswer {
    const reported = usageOfTail(body);
    requireList(body, { list: "choices", endsProperly: reported !== null, contentType });
    return this.#settledWhole(body, reported, {
      tokens: () => tokensOf(choicesOf(body).map(({ message, text, delta }) => [message, text, delta])),
      answer: () => answerOf(body),
    });
  }

  #settledWhole(
    body: AnswerBody,
    reported: UsageReport,
    written: { tokens(): number; answer(): Record<string, unknown> | null },
  ): WholeAnswer {
    const { call } = this;
    call.begun();
    call.route.succeeded();
    const isReported = reported !== null && reported !== ABSURD && reported.lacks === undefined;
    const delivered = isReported ? 0 : written.tokens();
    // Must come first: settling ends the record.
    const capture = this.#capture;
    if (capture) {
      const message = written.answer();
      capture.answered = () => message;
    }
    const owed = call.settle({ isWhole: true, reported, delivered, toolCalls: this.#toolCalls });
    return new WholeAnswer(body, this.#head, { isReported, owed }, this.#form);
  }

  /** Before the call is sent; a failure ends the call. */
  async #storeSent(): Promise<void> {
    try {
      await this.record.sent(this.call.route);
    } catch (error) {
      this.call.failed(error);
      this.call.settle();
      throw toFailure(error);
    }
  }

  /** Starts the stream; throws as long as a failure can still set the status. */
  async begin(): Promise<this> {
    const { call, record } = this;
    if (record.collector) await this.#storeSent();
    for (;;) {
      try {
        await this.#beginOnce();
        break;
      } catch (error) {
        let failure = error;
        if (this.#hasDelivered) call.failed(error);
        else failure = await call.fallBack(error);
        if (failure === null) continue;
        this.#settle({ isWhole: false });
        throw call.toClientError(failure);
      }
    }
    if (call.watched.isAborted) this.left();
    return this;
  }

  async #beginOnce(): Promise<void> {
    const { call } = this;
    // What an earlier attempt reported is not owed for this one.
    this.#meter = null;
    this.#toolCalls.length = 0;
    const answer = await call.send();
    const { spoken } = this;
    this.#noteHeaders(answer, spoken);
    const events = spoken ? this.#nativeStream(answer, spoken) : await this.#chatStream(answer);
    const hold = new StreamHold(call.admission, call.outgoing);
    const relay = new Relay(events, this.#meter!, call.watched, hold);
    await relay.peek();
    call.begun();
    call.observed.firstChunk();
    this.#relay = relay;
  }

  #nativeStream(answer: Answer, spoken: NativeDialect): Answer {
    if (!isEventStream(answer.contentType))
      throw new BackendError(
        "mismatch",
        `the upstream answered with ${answer.contentType}, not with a stream`,
      );
    this.#listener = null;
    const capture = this.#capture;
    const events: Record<string, unknown>[] = [];
    if (capture) capture.answered = () => ({ events });
    const hasTools = this.call.outgoing.tools !== null;
    const note = (event: Record<string, unknown>) => {
      if (capture) events.push(event);
      if (hasTools) this.#toolCalls.push(...vendorCallsIn(event));
    };
    this.#meter = new NativeMeter(spoken.reader(), capture || hasTools ? note : undefined);
    return answer;
  }

  /** The answer as a stream, even if the upstream sent a whole one. */
  async #chatStream(answer: Answer): Promise<Answer> {
    const head = this.#head;
    this.#listener = this.options.listener?.() ?? null;
    const keepUsage = this.fields.streamOptions?.include_usage === true;
    this.#meter = new ChatMeter({ keepUsage, onChunk: this.#chunkListener(), head, form: this.#form });
    const type = answer.contentType;
    if (isEventStream(type)) return answer;
    if (mediaTypeOf(type).includes("html"))
      throw new BackendError("transport", `the upstream answered with ${type}`);
    // Some servers stream under other types; only JSON is certainly a whole answer.
    if (!isJsonType(type)) return answer;
    const body = await readAnswer(answer);
    requireList(new AnswerBody(body), { list: "choices" });
    return replayAsStream(body);
  }

  /** Passes chunks to the listener, the conversation's collector and the capture, if there are any. */
  #chunkListener(): ChatMeterOptions["onChunk"] {
    const listener = this.#listener;
    const { collector } = this.record;
    const capture = this.#capture;
    if (!collector && !listener && !capture) return undefined;
    const { watched } = this.call;
    const captured = capture && new AnswerCollector();
    if (capture && captured) capture.answered = () => captured.message();
    return (chunk, choices) => {
      // Capturing alone delivers nothing: another backend may still answer.
      this.#hasDelivered ||= collector !== null || listener !== null;
      if (captured) for (const choice of choices) captured.add(choice);
      if (collector) for (const choice of choices) collector.add(choice);
      if (!listener || watched.isAborted) return;
      try {
        listener.chunk(chunk, choices);
      } catch (error) {
        watched.abort(new BackendError("transport", toServiceError(error).message));
      }
    };
  }

  /** Relays until the end. Usage is in the journal before the last bytes leave. */
  async run(sink: Sink): Promise<ReportedUsage | null> {
    this.#running = true;
    const { call, record } = this;
    const meter = this.#meter!;
    const ending = await this.#relay!.run(sink);
    this.#hasEnded = ending.kind === "complete";
    this.#cancelReading?.();
    if (ending.kind === "left" || this.#cancelReading) {
      const owed = this.#settleLeaver();
      if (record.collector)
        await (ending.kind === "complete" ? record.completed(call.route) : record.interrupted("stopped"));
      return owed;
    }
    if (ending.kind === "cut") {
      call.failed(ending.error);
      this.#settle({ isWhole: false });
      const failure = toServiceError(toFailure(ending.error));
      if (record.collector) await record.interrupted(failure.message);
      this.#listener?.error(failure);
      sink.end(meter.failing(failure));
      throw failure;
    }
    call.route.succeeded();
    const isStopped = ending.kind === "stopped";
    const settled = this.#settle({ isWhole: !isStopped, isStopped });
    const closing = meter.closing(settled, { isStopped });
    if (record.collector) await record.completed(call.route);
    try {
      this.#listener?.finish(settled, this.#head);
    } catch (error) {
      this.#listener?.error(toServiceError(error));
    }
    sink.end(closing);
    return settled;
  }

  drained(): void {
    this.#relay?.drained();
  }
}

const sendChat: UpstreamCallOptions["send"] = (backend, call) => backend.chat?.(call);
const sendCompletion: UpstreamCallOptions["send"] = (backend, call) => backend.post?.("/completions", call);

/** Our own token count of a whole answer, for upstreams that report no usage. */
function tokensOf(written: readonly unknown[]): number {
  const counter = new TokenCounter();
  for (const each of written) countTexts(each, counter);
  return counter.tokens;
}

/** Fields that the gateway sets. Streams are always asked to include usage. */
function fieldsToSet(
  { stream, streamOptions }: ChatFields,
  messagesJson: string | null,
): ReadonlyMap<string, string> | undefined {
  if (messagesJson === null && !stream) return undefined;
  const set = new Map<string, string>();
  if (messagesJson !== null) set.set("messages", messagesJson);
  if (stream) set.set("stream_options", JSON.stringify({ ...streamOptions, include_usage: true }));
  return set;
}
