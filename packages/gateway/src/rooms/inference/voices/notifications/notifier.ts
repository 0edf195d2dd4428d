import type { z } from "zod";
import type { EventStream } from "../../../../bus/contract.ts";
import { ERRORS, type ServiceError } from "../../../../kernel/errors.ts";
import { type ReportedUsage, usageFields } from "../../call/usage-tail.ts";
import { chatStream } from "../../notifications.ts";
import type { ChatChunk, Choice } from "../../stream/chat-meter.ts";
import type { Listener } from "../../turn/listener.ts";

type Piece = Omit<z.input<typeof chatStream.params>, "stream_id">;

/** Sends a streamed answer as notifications, piece by piece. */
export class Notifier implements Listener {
  /** Notifications that wait for their subscriber. */
  #waiting: Piece[] = [];
  #finishReason = "stop";
  /** The last notification has been put together. */
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

/** One piece of the answer as the notification carries it; null for an empty one. */
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
