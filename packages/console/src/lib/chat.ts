import { type ChatUsage, isAbort, type ToolCall } from "@model-gateway/client";
import { api } from "./api.ts";
import { client } from "./client.ts";

export interface Picture {
  dataUrl: string;
  name: string;
}

export interface ChatTurnMessage {
  role: "user" | "assistant" | "system";
  content: string | readonly Record<string, unknown>[];
}

/** The user's turn; pictures make its content a list of parts, which is how models take them. */
export function userMessage(text: string, pictures: readonly Picture[]): ChatTurnMessage {
  if (pictures.length === 0) return { role: "user", content: text };
  const images = pictures.map(({ dataUrl }) => ({ type: "image_url", image_url: { url: dataUrl } }));
  return { role: "user", content: [{ type: "text", text }, ...images] };
}

export interface Answer {
  state: "waiting" | "streaming" | "done" | "stopped" | "failed";
  text: string;
  reasoning: string;
  toolCalls: readonly ToolCall[];
  usage: ChatUsage | null;
  firstTokenMs: number | null;
  totalMs: number;
  finishReason: string | null;
  /** Null while it is not known, undefined when the model has no price. */
  costUsd: number | null | undefined;
  memory: string | null;
  error: unknown;
}

export const NEW_ANSWER: Answer = {
  state: "waiting",
  text: "",
  reasoning: "",
  toolCalls: [],
  usage: null,
  firstTokenMs: null,
  totalMs: 0,
  finishReason: null,
  costUsd: null,
  memory: null,
  error: null,
};

/** Deltas of one tool call arrive under its index; their argument text adds up. */
export function mergeToolCalls(before: readonly ToolCall[], deltas: readonly ToolCall[]): ToolCall[] {
  const merged = [...before];
  for (const delta of deltas) {
    const at = delta.index ?? (merged.length === 0 || delta.id ? merged.length : merged.length - 1);
    const known = merged[at];
    merged[at] = {
      ...known,
      ...delta,
      function: {
        name: delta.function?.name ?? known?.function?.name,
        arguments: (known?.function?.arguments ?? "") + (delta.function?.arguments ?? ""),
      },
    };
  }
  return merged;
}

export interface ChatRun {
  request: Record<string, unknown> & { model: string; messages: unknown[] };
  signal: AbortSignal;
  onChange(answer: Answer): void;
}

/** Runs one turn and reports the answer as it grows; never throws, the answer says how it ended. */
export async function runChat({ request, signal, onChange }: ChatRun): Promise<Answer> {
  const startedMs = performance.now();
  const startedAt = Date.now();
  let answer = NEW_ANSWER;
  const change = (fields: Partial<Answer>) => {
    answer = { ...answer, ...fields, totalMs: performance.now() - startedMs };
    onChange(answer);
  };
  try {
    const onStart = ({ memory }: { memory?: unknown }) =>
      change({ memory: typeof memory === "string" ? memory : null });
    for await (const part of client.chat(request, { signal, onStart })) {
      change({
        state: part.done ? "done" : "streaming",
        text: answer.text + (part.content ?? ""),
        reasoning: answer.reasoning + (part.reasoning ?? ""),
        toolCalls: part.tool_calls ? mergeToolCalls(answer.toolCalls, part.tool_calls) : answer.toolCalls,
        firstTokenMs: answer.firstTokenMs ?? (part.done ? null : performance.now() - startedMs),
        usage: part.usage ?? answer.usage,
        finishReason: part.finish_reason ?? answer.finishReason,
      });
    }
    if (signal.aborted) change({ state: "stopped" });
    else void findCost(request.model, startedAt, answer.usage).then((costUsd) => change({ costUsd }));
  } catch (error) {
    if (isAbort(error) || signal.aborted) change({ state: "stopped" });
    else change({ state: "failed", error });
  }
  return answer;
}

const COST_TRIES = 8;
const COST_EVERY_MS = 500;
/** Clocks of the browser and the service may differ by this much. */
const CLOCK_SLACK_MS = 5_000;

/** The usage row of the turn is written a moment after its last word; its cost is looked up there. */
async function findCost(
  model: string,
  startedAt: number,
  usage: ChatUsage | null,
): Promise<number | null | undefined> {
  for (let tries = 0; tries < COST_TRIES; tries++) {
    await new Promise((resolve) => setTimeout(resolve, COST_EVERY_MS));
    const latest = await api("usage.list", { limit: 10 }).catch(() => null);
    const row = latest?.records.find(
      (record) =>
        Date.parse(record.created_at) >= startedAt - CLOCK_SLACK_MS &&
        (record.model === model || record.model === `${model}:latest`) &&
        (usage === null || record.total_tokens === usage.total_tokens),
    );
    if (row) return row.cost ?? undefined;
  }
  return null;
}
