import type { EventHub, EventStream } from "../../../../bus/contract.ts";
import type { Actor } from "../../../../kernel/context.ts";
import { toServiceError } from "../../../../kernel/errors.ts";
import { inBackground } from "../../../../kernel/log.ts";
import type { RequestRecord } from "../../../../kernel/request-record.ts";
import type { RecallState } from "../../../memory/index.ts";
import type { Metering } from "../../../metering/index.ts";
import { Payload } from "../../request/payload.ts";
import { type ChatParts, ChatTurn } from "../../turn/chat-turn.ts";
import { Notifier } from "./notifier.ts";

interface SendOptions {
  actor: Actor;
  requestId: string;
  /** The request in the form of the REST surface. */
  body: Record<string, unknown>;
  record: RequestRecord | null;
}

interface SendResult {
  stream_id: string;
  memory: RecallState;
  /** Set when the answer was limited to this because the payer cannot cover more. */
  max_tokens?: number;
}

/** `chat.send`: the answer goes to a notification channel, piece by piece. */
export class ChatSender {
  constructor(
    readonly parts: ChatParts & { metering: Pick<Metering, "payerOf"> },
    readonly events: EventHub,
  ) {}

  async send({ actor, requestId, body, record }: SendOptions): Promise<SendResult> {
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
    // The answer goes on when its subscriber leaves: it may come back, and a conversation keeps the answer.
    stream.onStop(() => stopped.abort());
    inBackground(this.parts.log, "a chat over notifications", this.#run(turn, stream, notifier));
    const { loweredTo } = turn.call;
    return {
      stream_id: stream.sessionId,
      memory: turn.record.recall,
      ...(loweredTo !== null && { max_tokens: loweredTo }),
    };
  }

  /** `chat.stop`. What was delivered until then is metered. */
  stop(actor: Actor, streamId: string): void {
    this.events.stop(streamId, actor.userId);
  }

  async #run(turn: ChatTurn, stream: EventStream, notifier: Notifier): Promise<void> {
    try {
      await turn.begin();
      await stream.whenHeard();
      const usage = await turn.run(notifier);
      if (!notifier.isOver) notifier.finish(usage);
    } catch (error) {
      // The turn has already reported failures mid-stream.
      const failure = toServiceError(error);
      turn.options.asker.record?.refused(failure);
      if (!notifier.isOver) notifier.error(failure);
      // A refusal may come faster than the subscriber.
      await stream.whenHeard();
    } finally {
      notifier.end();
      stream.end();
    }
  }
}
