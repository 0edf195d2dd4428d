import {
  type ChatStream,
  type ChatUsage,
  ConnectionError,
  isAbort,
  type ToolCall,
} from "@model-gateway/client";
import { api } from "./api.ts";
import { client } from "./client.ts";
import { withoutCost } from "./format.ts";
import { Told } from "./told.ts";

export interface Picture {
  dataUrl: string;
  name: string;
}

export interface ChatTurnMessage {
  role: "user" | "assistant" | "system" | "tool";
  content: string | readonly Record<string, unknown>[];
  tool_calls?: readonly ToolCall[];
  tool_call_id?: string;
}

/** The user's turn; pictures make its content a list of parts, which is how models take them. */
export function userMessage(text: string, pictures: readonly Picture[]): ChatTurnMessage {
  if (pictures.length === 0) return { role: "user", content: text };
  const images = pictures.map(({ dataUrl }) => ({ type: "image_url", image_url: { url: dataUrl } }));
  return { role: "user", content: [{ type: "text", text }, ...images] };
}

export interface Answer {
  /** Where the rest of it arrives; null until the service has taken the request. */
  streamId: string | null;
  state: "waiting" | "streaming" | "done" | "stopped" | "failed";
  text: string;
  reasoning: string;
  toolCalls: readonly ToolCall[];
  usage: ChatUsage | null;
  firstTokenMs: number | null;
  totalMs: number;
  finishReason: string | null;
  /** The last event of it that was seen: after a reload it goes on from there. */
  lastEventId: string | null;
  /** The page was loaded again before any event was seen; what was said in that moment may not be in the text. */
  hasGap: boolean;
  /** Null while it is not known; in words when the model has no price. */
  costUsd: number | string | null;
  memory: string | null;
  error: unknown;
}

/** The connection was lost while the answer was written; the service goes on with it. */
export const canGoOn = ({ state, error, streamId }: Answer): boolean =>
  state === "failed" && error instanceof ConnectionError && streamId !== null;

export const isRunning = ({ state }: Pick<Answer, "state">): boolean =>
  state === "waiting" || state === "streaming";

export const NEW_ANSWER: Answer = {
  streamId: null,
  state: "waiting",
  text: "",
  reasoning: "",
  toolCalls: [],
  usage: null,
  firstTokenMs: null,
  totalMs: 0,
  finishReason: null,
  lastEventId: null,
  hasGap: false,
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

/** Longer than a page keeps running while it unloads, shorter than anyone notices. */
const LEAVING_MS = 100;

/** Collects the pieces of an answer and reports them at most once a frame: a fast model sends far more often. */
class Collector {
  #startedMs = performance.now();
  #frame: number | null = null;

  constructor(
    public answer: Answer,
    readonly onChange: (answer: Answer) => void,
  ) {
    this.#startedMs -= answer.totalMs;
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedMs;
  }

  change(fields: Partial<Answer>): void {
    this.answer = { ...this.answer, ...fields, totalMs: this.elapsedMs };
    this.#frame ??= requestAnimationFrame(() => this.tell());
    // Background tabs draw no frames, and the end must not wait for one.
    if (!isRunning(this.answer)) this.tell();
  }

  tell(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.onChange(this.answer);
  }

  add(part: ChatStream): void {
    const { answer } = this;
    this.change({
      state: part.done ? "done" : "streaming",
      text: answer.text + (part.content ?? ""),
      reasoning: answer.reasoning + (part.reasoning ?? ""),
      toolCalls: part.tool_calls ? mergeToolCalls(answer.toolCalls, part.tool_calls) : answer.toolCalls,
      firstTokenMs: answer.firstTokenMs ?? (part.done ? null : this.elapsedMs),
      usage: part.usage ?? answer.usage,
      finishReason: part.finish_reason ?? answer.finishReason,
    });
  }

  /** Runs the work until the answer is over; never throws, the answer says how it ended. */
  async run(signal: AbortSignal, work: () => Promise<void>): Promise<Answer> {
    try {
      await work();
      if (signal.aborted) this.change({ state: "stopped" });
    } catch (error) {
      // A page that unloads loses its connections first: reported at once, the answer would be stored as failed.
      await new Promise((resolve) => setTimeout(resolve, LEAVING_MS));
      if (isAbort(error) || signal.aborted) this.change({ state: "stopped" });
      else this.change({ state: "failed", error });
    }
    return this.answer;
  }
}

/** Runs one turn and reports the answer as it grows. */
export async function runChat({ request, signal, onChange }: ChatRun): Promise<Answer> {
  const startedAt = Date.now();
  const collector = new Collector(NEW_ANSWER, onChange);
  const ended = await collector.run(signal, async () => {
    const onStart = ({ stream_id, memory }: { stream_id: string; memory?: unknown }) => {
      collector.change({ streamId: stream_id, memory: typeof memory === "string" ? memory : null });
      // At once, or a reload within this frame would not know where the answer goes on.
      collector.tell();
    };
    const onEventId = (lastEventId: string) => collector.change({ lastEventId });
    for await (const part of client.chat(request, { signal, onStart, onEventId })) collector.add(part);
  });
  if (ended.state === "done")
    void findCost(request.model, startedAt, ended.usage).then((costUsd) => collector.change({ costUsd }));
  return ended;
}

/** An answer that is silent for this long after it was taken up again is gone: the service was restarted. */
const FOLLOW_SILENCE_MS = 30_000;

/** Resumes an answer that was in progress before the page was reloaded or the connection was lost. */
export function followChat(
  before: Answer & { streamId: string },
  { signal, onChange }: Omit<ChatRun, "request">,
): Promise<Answer> {
  const { streamId: stream_id, lastEventId } = before;
  const collector = new Collector({ ...before, hasGap: lastEventId === null }, onChange);
  const onEventId = (id: string) => collector.change({ lastEventId: id });
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(), FOLLOW_SILENCE_MS);
  return collector.run(signal, async () => {
    const either = AbortSignal.any([signal, silent.signal]);
    for await (const { method, params } of client.events(stream_id, {
      signal: either,
      lastEventId,
      onEventId,
    })) {
      if (method !== "chat.stream") continue;
      clearTimeout(timer);
      if (params.error) throw new Error(params.error.message);
      collector.add(params);
      if (params.done) return;
    }
    if (signal.aborted) void api("chat.stop", { stream_id }).catch(() => {});
    else throw new Told("The rest of this answer is gone", "Send the message again.");
  });
}

const COST_TRIES = 8;
const COST_EVERY_MS = 500;
/** Clocks of the browser and the service may differ by this much. */
const CLOCK_SLACK_MS = 5_000;

/** The models under which a turn is metered: the one asked for, or of a model route its targets. */
async function meteredAs(model: string): Promise<ReadonlySet<string>> {
  const known = await api("models.list").catch(() => []);
  const targets = known.find(({ id }) => id === model)?.targets ?? [];
  return new Set([model, ...targets].flatMap((id) => [id, `${id}:latest`]));
}

/** The usage row of the turn is written a moment after its last word; its cost is looked up there. */
async function findCost(
  model: string,
  startedAt: number,
  usage: ChatUsage | null,
): Promise<Answer["costUsd"]> {
  const names = await meteredAs(model);
  for (let tries = 0; tries < COST_TRIES; tries++) {
    await new Promise((resolve) => setTimeout(resolve, COST_EVERY_MS));
    const latest = await api("usage.list", { limit: 10 }).catch(() => null);
    const row = latest?.records.find(
      (record) =>
        Date.parse(record.created_at) >= startedAt - CLOCK_SLACK_MS &&
        names.has(record.model) &&
        (usage === null || record.total_tokens === usage.total_tokens),
    );
    if (row) return row.cost ?? withoutCost(row.unpriced);
  }
  return null;
}
