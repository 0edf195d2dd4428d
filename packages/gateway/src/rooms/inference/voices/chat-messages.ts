import type { AnsweredCall } from "./chat-answer.ts";
import type { ChatMessage, ChatPart } from "./chat-body.ts";

const PARAGRAPH = "\n\n";

/** Builds messages in the order that upstreams require: one system message, results after calls, no two user messages in a row. */
export class ChatMessages {
  readonly #messages: ChatMessage[] = [];
  /** Images and files of a tool result: a tool message cannot carry them, but the next user message can. */
  #behindTools: ChatPart[] = [];
  #reasoning = "";

  system(text: string): void {
    if (text === "") return;
    this.#flush();
    const last = this.#messages.at(-1);
    if (last?.role === "system" && this.#messages.length === 1) last.content += PARAGRAPH + text;
    else this.#messages.push({ role: "system", content: text });
  }

  user(parts: readonly ChatPart[]): void {
    const all = this.#behindTools.concat(parts);
    this.#behindTools = [];
    if (all.length === 0) return;
    const last = this.#messages.at(-1);
    if (last?.role === "user") (last.content as ChatPart[]).push(...all);
    else this.#messages.push({ role: "user", content: all });
  }

  /** Reasoning for the assistant message that follows. */
  reasoning(text: string): void {
    this.#reasoning += text;
  }

  assistant(text: string): void {
    const message = this.#assistant();
    message.content = message.content ? `${message.content}${PARAGRAPH}${text}` : text;
  }

  toolCall({ id, ...call }: AnsweredCall): void {
    const message = this.#assistant();
    message.tool_calls ??= [];
    message.tool_calls.push({ id, type: "function", function: call });
  }

  toolResult({ callId, parts }: { callId: string; parts: readonly ChatPart[] }): void {
    const texts = parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
    this.#behindTools.push(...parts.filter(({ type }) => type !== "text"));
    this.#messages.push({ role: "tool", tool_call_id: callId, content: texts.join("\n") });
  }

  done(): ChatMessage[] {
    this.#flush();
    for (const message of this.#messages)
      if (message.role === "user") message.content = plainWherePossible(message.content as ChatPart[]);
    return this.#messages;
  }

  #flush(): void {
    if (this.#behindTools.length > 0) this.user([]);
  }

  #assistant(): ChatMessage {
    this.#flush();
    let message = this.#messages.at(-1);
    if (message?.role !== "assistant") {
      message = { role: "assistant", content: null };
      this.#messages.push(message);
    }
    if (this.#reasoning !== "") {
      message.reasoning_content = (message.reasoning_content ?? "") + this.#reasoning;
      this.#reasoning = "";
    }
    return message;
  }
}

/** Plain text as one string, because not every upstream accepts lists of parts. */
function plainWherePossible(parts: ChatPart[]): string | ChatPart[] {
  const texts = parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  return texts.length === parts.length ? texts.join(PARAGRAPH) : parts;
}
