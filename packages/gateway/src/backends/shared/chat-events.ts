export interface ToolCallDelta {
  index: number;
  id?: string;
  type?: "function";
  function: { name?: string; arguments: string };
}

export interface ChatDelta {
  role?: string;
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: ToolCallDelta[];
  /** Goes beside the delta. */
  logprobs?: unknown;
  [field: string]: unknown;
}

/** The first delta of a call; the others have only arguments. */
export const openedCall = (
  index: number,
  { id, name, arguments: args }: { id: string; name: string; arguments: string },
): ToolCallDelta => ({ index, id, type: "function", function: { name, arguments: args } });

export interface ChatIdentity {
  id: string;
  model: string;
  createdSeconds: number;
}

export const chatIdentity = (options: { requestId: string; model: string; nowMs: number }): ChatIdentity => ({
  id: `chatcmpl-${options.requestId}`,
  model: options.model,
  createdSeconds: Math.floor(options.nowMs / 1000),
});

const event = (json: string) => `data: ${json}\n\n`;
const DONE_EVENT = event("[DONE]");

/** A failure after the status was sent. No `[DONE]` follows it. */
export const errorEvent = (message: string, usage?: unknown): string =>
  event(JSON.stringify({ error: { message, type: "server_error", code: "bad_gateway" }, usage }));

export class ChatEvents {
  readonly #head: string;
  #opened = false;

  constructor({ id, model, createdSeconds }: ChatIdentity) {
    this.#head = `{"id":${JSON.stringify(id)},"object":"chat.completion.chunk","created":${createdSeconds},"model":${JSON.stringify(model)},"choices":`;
  }

  /** The first delta has the role: clients refuse a stream without one. */
  delta({ logprobs, ...delta }: ChatDelta): string {
    const first = this.#opened ? delta : { role: "assistant", ...delta };
    this.#opened = true;
    const extra = logprobs === undefined ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
    return event(`${this.#head}[{"index":0,"delta":${JSON.stringify(first)}${extra},"finish_reason":null}]}`);
  }

  /** The finish reason, the usage if known, and `[DONE]`. */
  end(finishReason: string, usage: unknown, stopSequence?: unknown): string {
    const opening = this.#opened ? "" : this.delta({ content: "" });
    const stop = stopSequence === undefined ? "" : `,"stop_reason":${JSON.stringify(stopSequence)}`;
    const finish = event(
      `${this.#head}[{"index":0,"delta":{},"finish_reason":${JSON.stringify(finishReason)}${stop}}]}`,
    );
    const counts = usage ? event(`${this.#head}[],"usage":${JSON.stringify(usage)}}`) : "";
    return opening + finish + counts + DONE_EVENT;
  }
}

export interface Completion {
  message: Record<string, unknown>;
  finishReason: string;
  usage: unknown;
  logprobs?: unknown;
  stopSequence?: unknown;
}

export const completionBody = (
  { id, model, createdSeconds }: ChatIdentity,
  { message, finishReason, usage, logprobs, stopSequence }: Completion,
) => ({
  id,
  object: "chat.completion",
  created: createdSeconds,
  model,
  choices: [
    {
      index: 0,
      message,
      finish_reason: finishReason,
      ...(stopSequence !== undefined && { stop_reason: stopSequence }),
      ...(logprobs !== undefined && { logprobs }),
    },
  ],
  ...(usage ? { usage } : {}),
});
