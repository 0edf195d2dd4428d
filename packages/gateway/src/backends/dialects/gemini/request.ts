import { objectIn } from "../../../kernel/json.ts";
import {
  type AssistantTurn,
  afterSystem,
  answerSchema,
  argumentsObject,
  type ChatPart,
  chatFunctions,
  chatToolChoice,
  chatTurns,
  copied,
  outputLimit,
  refuseUnsupported,
  requireInline,
  textOfParts,
  UNSUPPORTED,
  wantsAnyJson,
} from "../chat-turns.ts";
import type { ChatRequestOptions } from "../dialect.ts";

export type Part = Record<string, unknown>;
interface Content {
  role: "user" | "model";
  parts: Part[];
}

/** Stands for the signature of a call that another model made; Google's own command line sends it, too. */
export const NO_SIGNATURE = "skip_thought_signature_validator";
/** Models before Gemini 3 think by a budget, later ones by a level. */
export const BUDGETED_MODEL = /gemini-(1|2)/i;
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
/** Fields of Gemini's API that clients give in a chat request. */
const OWN_FIELDS = ["safetySettings", "cachedContent"] as const;

export function geminiRequest(
  body: Record<string, unknown>,
  { kept, wantsThoughts }: ChatRequestOptions,
): Record<string, unknown> {
  refuseUnsupported(body, UNSUPPORTED);
  const { system, rest } = afterSystem(chatTurns(body.messages));
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
  const functions = chatFunctions(body.tools).map(({ name, description, parameters }) => ({
    name,
    ...(description !== undefined && { description }),
    parametersJsonSchema: parameters,
  }));
  const config = generationConfig(body, wantsThoughts);
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

/** The API wants an object; most results are plain text. */
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

function generationConfig(body: Record<string, unknown>, wantsThoughts?: boolean): Record<string, unknown> {
  const config: Record<string, unknown> = {};
  for (const name in SETTINGS) if (body[name] != null) config[SETTINGS[name]!] = body[name];
  const limit = outputLimit(body);
  if (limit !== null) config.maxOutputTokens = limit;
  if (body.stop != null) config.stopSequences = Array.isArray(body.stop) ? body.stop : [body.stop];
  const schema = answerSchema(body);
  if (schema || wantsAnyJson(body)) config.responseMimeType = "application/json";
  if (schema) config.responseJsonSchema = schema.schema;
  const { reasoning_effort: effort, model } = body;
  if (typeof effort === "string")
    config.thinkingConfig = BUDGETED_MODEL.test(String(model))
      ? { includeThoughts: effort !== "none", thinkingBudget: BUDGETS[effort] ?? BUDGET_MOST }
      : { includeThoughts: true, thinkingLevel: LEVELS[effort] ?? "HIGH" };
  else if (wantsThoughts) config.thinkingConfig = { includeThoughts: true };
  return config;
}
