import { NEW_ANSWER } from "../../lib/chat.ts";
import { keepDraft } from "../../lib/drafts.ts";
import { EMPTY_PARAMETERS, type Parameters } from "./parameters.ts";
import { PLAYGROUND_DRAFT, playground, type Turn } from "./state.ts";

/** What was captured of a request. */
type Asked = Readonly<Record<string, unknown>>;

interface Message {
  role: string;
  text: string;
}

/** The text of a message's content, in any of its forms. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .map((part: unknown) => (part as { text?: unknown } | null)?.text)
    .filter((text) => typeof text === "string")
    .join("\n");
}

/** What was said: the messages of a chat, or the texts of a completion or of vectors. */
export function messagesOf({ messages, prompt, input }: Asked): Message[] {
  const texts = [prompt ?? input ?? []].flat().filter((text) => typeof text === "string");
  const list: unknown = messages ?? texts.map((content) => ({ role: "user", content }));
  if (!Array.isArray(list)) return [];
  return list.map((message: { role?: unknown; content?: unknown }) => ({
    role: String(message?.role ?? "user"),
    text: textOf(message?.content),
  }));
}

const textOfNumber = (value: unknown): string => (typeof value === "number" ? String(value) : "");

function parametersOf(asked: Asked, messages: readonly Message[]): Parameters {
  return {
    ...EMPTY_PARAMETERS,
    system: messages
      .filter(({ role }) => role === "system" || role === "developer")
      .map(({ text }) => text)
      .join("\n\n"),
    temperature: textOfNumber(asked.temperature),
    topP: textOfNumber(asked.top_p),
    maxTokens: textOfNumber(asked.max_tokens ?? asked.max_completion_tokens),
    tools: Array.isArray(asked.tools) ? JSON.stringify(asked.tools, null, 2) : "",
  };
}

/** Puts a captured request into the playground: what went before as turns, the last message ready to be sent. */
export function replay(model: string, asked: Asked): void {
  const messages = messagesOf(asked);
  const last = messages.findLastIndex(({ role }) => role === "user");
  const turns: Turn[] = [];
  for (const { role, text } of messages.slice(0, Math.max(0, last))) {
    if (role === "user") turns.push({ id: turns.length + 1, text, pictures: [], panes: [[]] });
    const turn = turns.at(-1);
    if (role !== "assistant" || !turn) continue;
    const answer = { ...NEW_ANSWER, state: "done" as const, text };
    const step = { request: { model, messages: [] }, answer, results: null };
    turns[turns.length - 1] = { ...turn, panes: [[...(turn.panes[0] ?? []), step]] };
  }
  playground.set({ turns, parameters: parametersOf(asked, messages), models: [model] });
  keepDraft(PLAYGROUND_DRAFT, messages[last]?.text ?? "");
}
