import { isObject, objectIn } from "../../../../kernel/json.ts";
import { sealedThoughts } from "../../../../kernel/own-thoughts.ts";
import type { AnsweredCall, Finish, TokenCounts } from "../chat-answer.ts";
import type { Failure } from "../voice.ts";
import type { ClientTool } from "./tools.ts";

export type OutputItem = { id: string; type: string; [field: string]: unknown };

export interface ResponseIdentity {
  token: string;
  createdSeconds: number;
  request: Record<string, unknown>;
  clientTools: ReadonlyMap<string, ClientTool>;
  /** Stores the response's JSON and tells whether that worked; null if it is not to be stored. */
  keep: ((responseJson: string) => boolean) | null;
}

export function usageOf(counts: TokenCounts | null) {
  if (!counts) return null;
  return {
    input_tokens: counts.prompt,
    input_tokens_details: { cached_tokens: counts.cached, cache_write_tokens: counts.cacheWritten },
    output_tokens: counts.completion,
    output_tokens_details: { reasoning_tokens: counts.reasoning },
    total_tokens: counts.prompt + counts.completion,
  };
}

export type Ending =
  | { status: "in_progress" }
  | { status: "completed" }
  | { status: "incomplete"; reason: "max_output_tokens" | "content_filter" }
  | { status: "failed"; failure: Failure };

export function endingOf({ reason }: Finish): Ending {
  if (reason === "length") return { status: "incomplete", reason: "max_output_tokens" };
  if (reason === "content_filter") return { status: "incomplete", reason: "content_filter" };
  return { status: "completed" };
}

const NOTHING = {};
const PLAIN_TEXT = { format: { type: "text" } };
const textOf = (text: unknown) =>
  isObject(text) ? { ...text, format: text.format ?? PLAIN_TEXT.format } : PLAIN_TEXT;

interface FinishedAnswer {
  model: string;
  output: readonly OutputItem[];
  ending: Ending;
  usage: TokenCounts | null;
}

/** JSON of a finished response, stored if requested. Empty responses are not stored. */
export function finishedJson(identity: ResponseIdentity, answered: FinishedAnswer): string {
  const { keep } = identity;
  if (keep && answered.output.length > 0) {
    const json = JSON.stringify(responseObject(identity, answered, true));
    if (keep(json)) return json;
  }
  return JSON.stringify(responseObject(identity, answered, false));
}

export function responseObject(
  identity: ResponseIdentity,
  { model, output, ending, usage }: FinishedAnswer,
  isStored: boolean,
) {
  const { request } = identity;
  const failure = ending.status === "failed" ? ending.failure : null;
  const effort = isObject(request.reasoning) ? request.reasoning.effort : null;
  return {
    id: `resp_${identity.token}`,
    object: "response",
    created_at: identity.createdSeconds,
    status: ending.status,
    error: failure && { code: failure.code ?? "server_error", message: failure.message },
    incomplete_details: ending.status === "incomplete" ? { reason: ending.reason } : null,
    model,
    output,
    usage: usageOf(usage),
    background: false,
    // The rest is constant or repeats the request.
    instructions: request.instructions ?? null,
    max_output_tokens: request.max_output_tokens ?? null,
    metadata: request.metadata ?? NOTHING,
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    previous_response_id: request.previous_response_id ?? null,
    reasoning: { effort: effort ?? null, summary: null },
    store: isStored,
    temperature: request.temperature ?? null,
    text: textOf(request.text),
    tool_choice: request.tool_choice ?? "auto",
    tools: request.tools ?? [],
    top_p: request.top_p ?? null,
    truncation: "disabled",
  };
}

export const textPart = (text: string) => ({ type: "output_text", text, annotations: [], logprobs: [] });
export const refusalPart = (refusal: string) => ({ type: "refusal", refusal });
export const reasoningPart = (text: string) => ({ type: "reasoning_text", text });
export const summaryPart = (text: string) => ({ type: "summary_text", text });
/** Clients that ask for a summary expect reasoning there. */
export const wantsSummary = ({ reasoning }: ResponseIdentity["request"]): boolean =>
  isObject(reasoning) && reasoning.summary != null;

type Status = "in_progress" | "completed" | "incomplete";

export const messageItem = (
  id: string,
  { content, status }: { content: object[]; status: Status },
): OutputItem => ({ id, type: "message", role: "assistant", status, content });

export const reasoningItem = (
  id: string,
  { content, status, request }: { content: object[]; status: Status; request: ResponseIdentity["request"] },
): OutputItem => ({
  id,
  type: "reasoning",
  ...(wantsSummary(request) ? { summary: content } : { summary: [], content }),
  ...(wantsSealed(request) && {
    encrypted_content: sealedThoughts(content.map((part) => (part as { text?: string }).text).join("\n")),
  }),
  status,
});

/** Some clients keep and return only encrypted reasoning. */
const wantsSealed = ({ include }: ResponseIdentity["request"]): boolean =>
  Array.isArray(include) && include.includes("reasoning.encrypted_content");

export const callIdPrefix = (tool: ClientTool | undefined): string => (tool?.custom ? "ctc" : "fc");

/** A call with the client's own tool name, in the form the client expects. */
export function callItem(
  id: string,
  { call, tool, status }: { call: AnsweredCall; tool: ClientTool | undefined; status: Status },
): OutputItem {
  const { name, namespace, custom } = tool ?? { name: call.name, namespace: undefined, custom: false };
  const common = { id, call_id: call.id, name, ...(namespace !== undefined && { namespace }), status };
  if (custom) return { ...common, type: "custom_tool_call", input: freeTextOf(call.arguments) };
  return { ...common, type: "function_call", arguments: call.arguments };
}

/** The free input of a custom tool, from the one parameter that carries it. */
export function freeTextOf(json: string): string {
  const input = objectIn(json)?.input;
  // If the model wrote plain text instead of JSON, that is the input.
  return typeof input === "string" ? input : json;
}
