import type { z } from "zod";
import type { EventHub, EventStream } from "../../../../bus/contract.ts";
import type { Actor } from "../../../../kernel/context.ts";
import { ERRORS, type ServiceError, toServiceError } from "../../../../kernel/errors.ts";
import { inBackground } from "../../../../kernel/log.ts";
import type { RequestRecord } from "../../../../kernel/request-record.ts";
import type { Metering } from "../../../metering/index.ts";
import { type ReportedUsage, usageFields } from "../../call/usage-tail.ts";
import { chatStream } from "../../notifications.ts";
import { Payload } from "../../request/payload.ts";
import type { ChatChunk, Choice } from "../../stream/chat-meter.ts";
import { type ChatParts, ChatTurn, type Listener } from "../../turn/chat-turn.ts";

interface SendOptions {
  actor: Actor;
  requestId: string;
  /** The request, in the REST surface's form. */
  body: Record<string, unknown>;
  record: RequestRecord | null;
}

/** `chat.send`: streams the answer to a notification channel. */
export class ChatSender {
  constructor(
    readonly parts: ChatParts & { metering: Pick<Metering, "payerOf"> },
    readonly events: EventHub,
  ) {}

  async send({ actor, requestId, body, record }: SendOptions) {
    const payer = await this.parts.metering.payerOf(actor);
    const stopped = new AbortController();
    const notifier = new Notifier();
    const turn = await ChatTurn.open(this.parts, {
      asker: { requestId, payer, rules: null, refId: null, channel: "rpc", traceparent: null, record },
      payload: new Payload({ ...body, stream: true }),
      client: {
        signal: stopped.signal,
        whenGone: (run) => stopped.signal.addEventListener("abort", run, { once: true }),
      },
      isConversation: true,
      listener: () => notifier,
    });
    if (record) record.detached = true;
    const stream = this.events.open(actor);
    notifier.stream = stream;
    // A subscriber that leaves does not stop the answer: it may come back, and the conversation keeps the answer.
    stream.onStop(() => stopped.abort());
    inBackground(this.parts.log, "a chat over notifications", this.#run(turn, stream, notifier));
    const { loweredTo } = turn.call.outgoing;
    return {
      stream_id: stream.sessionId,
      memory: turn.record.recall,
      // Set if the answer was limited because the payer cannot cover more.
      ...(loweredTo !== null && { max_tokens: loweredTo }),
    };
  }

  async #run(turn: ChatTurn, stream: EventStream, notifier: Notifier): Promise<void> {
    try {
      await turn.begin();
      await stream.whenHeard();
      const usage = await turn.run(notifier);
      if (!notifier.isOver) notifier.finish(usage);
    } catch (error) {
      // The turn itself reports failures mid-stream.
      const failure = toServiceError(error);
      turn.options.asker.record?.refused(failure);
      if (!notifier.isOver) notifier.error(failure);
      // A refusal may be faster than the subscriber.
      await stream.whenHeard();
    } finally {
      notifier.end();
      stream.end();
    }
  }
}

type Piece = Omit<z.input<typeof chatStream.params>, "stream_id">;

/** Writes a streamed answer as notifications. */
class Notifier implements Listener {
  /** Notifications not sent yet. */
  #waiting: Piece[] = [];
  #finishReason = "stop";
  /** The last notification has been queued. */
  isOver = false;
  stream: EventStream | null = null;

  chunk(_: ChatChunk, choices: readonly Choice[]): void {
    for (const { delta, finish_reason } of choices) {
      if (typeof finish_reason === "string") this.#finishReason = finish_reason;
      const piece = notificationOf(delta);
      if (piece) this.#waiting.push({ ...piece, finish_reason: null });
    }
  }

  finish(usage: ReportedUsage | null): void {
    this.isOver = true;
    const finish_reason = this.#finishReason;
    this.#waiting.push({ content: "", done: true, finish_reason, usage: usage && usageFields(usage) });
  }

  error({ kind, message }: ServiceError): void {
    this.isOver = true;
    this.#waiting.push({ done: true, error: { code: ERRORS[kind].rpc, message } });
  }

  write(): boolean {
    const { stream } = this;
    if (!stream) return true;
    for (const params of this.#waiting.splice(0))
      stream.emit(chatStream, { stream_id: stream.sessionId, ...params });
    return true;
  }
  end(): void {
    this.write();
  }
  keepAlive(): void {}
}

/** A delta as a notification; null if it is empty. */
function notificationOf(delta: Record<string, unknown>): Piece | null {
  const { role, content, tool_calls } = delta;
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  const says = content || reasoning || tool_calls || (role && content === undefined);
  if (!says) return null;
  return {
    content: typeof content === "string" ? content : "",
    ...(typeof role === "string" && { role }),
    ...(Array.isArray(tool_calls) && { tool_calls }),
    ...(typeof reasoning === "string" && { reasoning }),
  };
}
