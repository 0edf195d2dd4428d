import { sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import { type ChatAnswer, type Finish, type TokenCounts, tokenCounts } from "../chat-answer.ts";
import { type ChatEvent, type Speaker, sseEvent } from "../voice.ts";
import type { Thoughts } from "./request.ts";
import {
  errorBody,
  messageOf,
  messageWith,
  stopOf,
  textBlock,
  thinkingBlock,
  toolUseBlock,
  usageOf,
} from "./response.ts";

type OpenBlock = "text" | "thinking" | "tool";

/** The beginning of each kind's delta, up to its text. */
const DELTAS: Record<OpenBlock, string> = {
  text: '"type":"text_delta","text"',
  thinking: '"type":"thinking_delta","thinking"',
  tool: '"type":"input_json_delta","partial_json"',
};

const event = (data: { type: string; [field: string]: unknown }) => sseEvent(data.type, data);

export class MessageSpeaker implements Speaker {
  readonly keepAlive = event({ type: "ping" });
  #open: OpenBlock | null = null;
  #index = -1;
  #hasCalls = false;
  #refused = false;
  /** Hidden thoughts of the open block. */
  #sealed = "";

  constructor(
    readonly options: {
      id: string;
      thoughts: Thoughts;
      /** Estimated, because the upstream reports the prompt's tokens only at the end. */
      promptTokens(): number;
    },
  ) {}

  whole(answer: ChatAnswer): string {
    return JSON.stringify(messageOf(answer, this.options));
  }

  write(happened: ChatEvent): string {
    switch (happened.type) {
      case "start":
        return this.#start(happened.model);
      case "reasoning":
        if (this.options.thoughts === null) return "";
        if (this.options.thoughts === "shown") return this.#into("thinking", happened.text);
        this.#sealed += happened.text;
        return this.#open === "thinking" ? "" : this.#begin("thinking", thinkingBlock("", ""));
      case "refusal":
        this.#refused = true;
        return this.#into("text", happened.text);
      case "text":
        return this.#into("text", happened.text);
      case "tool_start":
        this.#hasCalls = true;
        return this.#begin("tool", toolUseBlock(happened, {}));
      case "tool_arguments":
        return this.#delta("tool", happened.text);
      case "tool_end":
        return this.#stop();
      case "finish":
        return this.#finish(happened.finish, happened.usage);
      case "failure":
        return event(errorBody(happened.failure));
    }
  }

  #start(model: string): string {
    const { id, promptTokens } = this.options;
    const usage = { ...tokenCounts(null), prompt: promptTokens() };
    const message = messageWith({ id, model, content: [], stop: null, usage });
    return event({ type: "message_start", message });
  }

  #begin(kind: OpenBlock, block: object): string {
    const stopped = this.#stop();
    this.#open = kind;
    this.#index++;
    return stopped + event({ type: "content_block_start", index: this.#index, content_block: block });
  }

  /** Writes into the open block of this kind, or begins one. */
  #into(kind: "text" | "thinking", text: string): string {
    if (this.#open === kind) return this.#delta(kind, text);
    return (
      this.#begin(kind, kind === "text" ? textBlock("") : thinkingBlock("", "")) + this.#delta(kind, text)
    );
  }

  #delta(kind: OpenBlock, text: string): string {
    // Serialised by hand: this is by far the most frequent event.
    return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${this.#index},"delta":{${DELTAS[kind]}:${JSON.stringify(text)}}}\n\n`;
  }

  #stop(): string {
    if (this.#open === null) return "";
    const delta = { type: "signature_delta", signature: sealedThoughts(this.#sealed) };
    const signed =
      this.#open === "thinking" ? event({ type: "content_block_delta", index: this.#index, delta }) : "";
    this.#open = null;
    this.#sealed = "";
    return signed + event({ type: "content_block_stop", index: this.#index });
  }

  #finish(finish: Finish, usage: TokenCounts): string {
    const stop = stopOf(this.#refused ? { ...finish, reason: "content_filter" } : finish, this.#hasCalls);
    const delta = { ...stop, stop_details: null, container: null };
    return (
      this.#stop() +
      event({ type: "message_delta", delta, usage: usageOf(usage) }) +
      event({ type: "message_stop" })
    );
  }
}
