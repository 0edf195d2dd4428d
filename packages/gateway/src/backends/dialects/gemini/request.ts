import { isObject, objectIn } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import type { NativeDialect } from "../../contract.ts";
import {
  type AssistantTurn,
  afterSystem,
  argumentsObject,
  type ChatPart,
  chatToolChoice,
  copied,
  type ReadChat,
  readChat,
  requireInline,
  textOfParts,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";

export type Part = Record<string, unknown>;
interface Content {
  role: "user" | "model";
  parts: Part[];
}

/** Signature for calls of other models; Google's own command line sends it, too. */
const NO_SIGNATURE = "skip_thought_signature_validator";
/** Models before Gemini 3 take a thinking budget, later ones a level. */
const BUDGETED_MODEL = /gemini-(1|2)/i;
const BUDGETS: Readonly<Record<string, number>> = { none: 0, minimal: 512, low: 1_024, medium: 8_192 };
const BUDGET_MOST = 24_576;
const LEVELS: Readonly<Record<string, string>> = {
  none: "MINIMAL",
  minimal: "MINIMAL",
  low: "LOW",
  medium: "MEDIUM",
};
const SETTINGS: Readonly<Record<string, string>> = {
  temperature: "temperature",
  top_p: "topP",
  top_k: "topK",
  seed: "seed",
  frequency_penalty: "frequencyPenalty",
  presence_penalty: "presencePenalty",
};
/** Fields of Gemini's API that clients may set in a chat request. */
const OWN_FIELDS = ["safetySettings", "cachedContent"] as const;

export function geminiRequest(
  body: Record<string, unknown>,
  { kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  const chat = readChat(body);
  const { system, rest } = afterSystem(chat.turns);
  const contents: Content[] = [];
  const add = (role: Content["role"], parts: readonly Part[]) => {
    if (parts.length === 0) return;
    const last = contents.at(-1);
    if (last?.role === role) last.parts.push(...parts);
    else contents.push({ role, parts: [...parts] });
  };
  for (const turn of rest) {
    if (turn.role === "system" || turn.role === "user") add("user", turn.parts.map(partOf));
    else if (turn.role === "tool") add("user", resultParts(turn));
    else add("model", (kept(turn) as Part[] | null) ?? modelParts(turn));
  }
  const functions = chat.functions.map(({ name, description, parameters }) => ({
    name,
    ...(description !== undefined && { description }),
    parametersJsonSchema: parameters,
  }));
  const config = generationConfig(body, chat, wantsThoughts);
  return {
    contents,
    ...(system.length > 0 && { systemInstruction: { parts: system.map(({ text }) => ({ text })) } }),
    ...(functions.length > 0 && { tools: [{ functionDeclarations: functions }], ...toolConfig(body) }),
    ...(Object.keys(config).length > 0 && { generationConfig: config }),
    ...copied(body, OWN_FIELDS),
  };
}

function partOf(part: ChatPart): Part {
  if (part.type === "text") return { text: part.text };
  if (part.type === "audio") return { inlineData: { mimeType: `audio/${part.format}`, data: part.data } };
  return { inlineData: requireInline(part) };
}

function resultParts({ callId, name, parts }: { callId: string; name: string; parts: ChatPart[] }): Part[] {
  const functionResponse = { id: callId, name, response: resultObject(textOfParts(parts)) };
  return [{ functionResponse }, ...parts.filter(({ type }) => type !== "text").map(partOf)];
}

/** The API requires an object, but most results are plain text. */
const resultObject = (text: string): Record<string, unknown> => objectIn(text) ?? { output: text };

const modelParts = ({ text, calls }: AssistantTurn): Part[] => [
  ...(text === "" ? [] : [{ text }]),
  ...calls.map((call, i) => ({
    functionCall: { id: call.id, name: call.name, args: argumentsObject(call) },
    ...(i === 0 && { thoughtSignature: NO_SIGNATURE }),
  })),
];

function toolConfig(body: Record<string, unknown>): Record<string, unknown> {
  const choice = chatToolChoice(body.tool_choice);
  if (choice === null) return {};
  const mode = choice === "auto" ? "AUTO" : choice === "none" ? "NONE" : "ANY";
  const named = typeof choice === "object" ? { allowedFunctionNames: [choice.name] } : {};
  return { toolConfig: { functionCallingConfig: { mode, ...named } } };
}

function generationConfig(
  body: Record<string, unknown>,
  { limit, schema, wantsAnyJson }: ReadChat,
  wantsThoughts?: boolean,
): Record<string, unknown> {
  const config: Record<string, unknown> = {};
  for (const name in SETTINGS) if (body[name] != null) config[SETTINGS[name]!] = body[name];
  if (limit !== null) config.maxOutputTokens = limit;
  if (body.stop != null) config.stopSequences = Array.isArray(body.stop) ? body.stop : [body.stop];
  if (schema || wantsAnyJson) config.responseMimeType = "application/json";
  if (schema) config.responseJsonSchema = schema.schema;
  const { reasoning_effort: effort, model } = body;
  if (typeof effort === "string")
    config.thinkingConfig = BUDGETED_MODEL.test(String(model))
      ? { includeThoughts: effort !== "none", thinkingBudget: BUDGETS[effort] ?? BUDGET_MOST }
      : { includeThoughts: true, thinkingLevel: LEVELS[effort] ?? "HIGH" };
  else if (wantsThoughts) config.thinkingConfig = { includeThoughts: true };
  return config;
}

const modelPartsOf = (content: unknown): unknown[] =>
  isObject(content) && content.role === "model" && Array.isArray(content.parts) ? content.parts : [];
/** The model signs the first of the calls in one content. */
const firstCall = (content: unknown): Part | undefined =>
  modelPartsOf(content).find((part): part is Part => isObject(part) && isObject(part.functionCall));

/** Signs calls that another model made. Models before Gemini 3 have no signatures. */
export const mendedGemini: NativeDialect["mended"] = (body, model) => {
  const contents = body.value("contents");
  const isSigning = !BUDGETED_MODEL.test(model);
  const isForeign = (call: Part | undefined) =>
    call !== undefined &&
    (thoughtsIn(call.thoughtSignature) !== null || (isSigning && call.thoughtSignature === undefined));
  if (!Array.isArray(contents) || !contents.some((content) => isForeign(firstCall(content)))) return [];
  const signed = contents.map((content) => {
    const call = firstCall(content);
    if (!isForeign(call)) return content;
    const own = { ...call, thoughtSignature: isSigning ? NO_SIGNATURE : undefined };
    return { ...content, parts: modelPartsOf(content).map((part) => (part === call ? own : part)) };
  });
  return [["contents", JSON.stringify(signed)]];
};

export const geminiEmbedRequest = (
  texts: readonly string[],
  { model, dimensions }: { model: string; dimensions?: unknown },
) => ({
  requests: texts.map((text) => ({
    model: `models/${model}`,
    content: { parts: [{ text }] },
    ...(dimensions != null && { outputDimensionality: dimensions }),
  })),
});
