import type { EventHub, EventStream } from "../../../../bus/contract.ts";
import { inBackground } from "../../../../kernel/background.ts";
import type { Actor } from "../../../../kernel/context.ts";
import { ERRORS, fail, toServiceError } from "../../../../kernel/errors.ts";
import type { RecallState } from "../../../memory/index.ts";
import { usageFields } from "../../call/usage-tail.ts";
import { Payload } from "../../request/payload.ts";
import type { Choice } from "../../stream/chunk-normaliser.ts";
import { type ChatParts, ChatTurn } from "../../turn/chat-turn.ts";

/** Turns that run at once in this process; each holds an upstream connection. */
const SENDS_MAX = 10_000;
const NOTIFICATION = "chat.stream";

export interface SendOptions {
  actor: Actor;
  requestId: string;
  /** The request in the form of the REST surface. */
  body: Record<string, unknown>;
}

export interface SendResult {
  stream_id: string;
  memory: RecallState;
  /** Set when the answer was limited to this because no more can be paid. */
  max_tokens?: number;
}

/** `chat.send`: the answer goes to a notification channel, piece by piece. */
export class ChatSender {
  #running = 0;

  constructor(
    readonly parts: ChatParts,
    readonly events: EventHub,
  ) {}

  async send({ actor, requestId, body }: SendOptions): Promise<SendResult> {
    if (this.#running >= SENDS_MAX)
      fail("unavailable", "Too many chats are running; try again shortly", { retryAfterSeconds: 5 });
    const payer = await this.parts.metering.payerOf(actor);
    const pieces: Choice[] = [];
    const deserted = new AbortController();
    const turn = await ChatTurn.open(this.parts, {
      asker: { requestId, payer, rules: null, refId: null, channel: "rpc", traceparent: null },
      payload: new Payload(Buffer.from(JSON.stringify({ ...body, stream: true }))),
      client: {
        signal: deserted.signal,
        whenGone: (run) => deserted.signal.addEventListener("abort", run, { once: true }),
      },
      withHistory: true,
      onChoice: (choice) => pieces.push(choice),
    });
    const stream = this.events.open(actor.userId);
    // Whoever stops listening has stopped the answer; what was delivered until then is metered.
    stream.onDeserted(() => deserted.abort());
    inBackground(this.parts.log, "a chat over notifications", this.#run(turn, stream, pieces));
    const { loweredTo } = turn.call;
    return {
      stream_id: stream.sessionId,
      memory: turn.record.recall,
      ...(loweredTo !== null && { max_tokens: loweredTo }),
    };
  }

  async #run(turn: ChatTurn, stream: EventStream, pieces: Choice[]): Promise<void> {
    this.#running++;
    const { sessionId: stream_id } = stream;
    const emit = (params: Record<string, unknown>) =>
      stream.emit({ method: NOTIFICATION, params: { stream_id, ...params } });
    let finishReason: unknown = null;
    // The bytes of the stream are for nobody: the choices are what is passed on.
    const passOn = () => {
      for (const { delta, finish_reason } of pieces.splice(0)) {
        if (typeof finish_reason === "string") finishReason = finish_reason;
        const piece = notificationOf(delta);
        if (piece) emit({ ...piece, finish_reason: null });
      }
      return true;
    };
    try {
      await turn.begin();
      await stream.whenHeard();
      const usage = await turn.run({ write: passOn, end: passOn });
      passOn();
      emit({
        content: "",
        done: true,
        finish_reason: finishReason ?? "stop",
        usage: usage && usageFields(usage),
      });
    } catch (error) {
      const failure = toServiceError(error);
      // A refusal may come faster than the subscriber.
      await stream.whenHeard();
      passOn();
      emit({ done: true, error: { code: ERRORS[failure.kind].rpc, message: failure.message } });
    } finally {
      stream.end();
      this.#running--;
    }
  }
}

/** One piece of the answer as the notification carries it; null for one that says nothing. */
function notificationOf(delta: Record<string, unknown>): Record<string, unknown> | null {
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
