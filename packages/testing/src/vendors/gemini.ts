/** Gemini's own API, from the types of @google/genai and its documents; it refuses what the real one does. */
import type { Rates } from "./bill.ts";
import {
  type Desk,
  type Exchange,
  type FakeVendor,
  Refusal,
  spokenTokens,
  startVendor,
  thinkingTokens,
  type VendorOptions,
  within,
  words,
} from "./model.ts";
import { readBySteps, tokensOf } from "./prefix-cache.ts";

// biome-ignore lint/suspicious/noExplicitAny: request bodies as they came
type Json = any;

const CACHE_STEP_TOKENS = 1;
const CACHE_TTL_MS = 5 * 60_000;
const OUTPUT_TOKENS_MAX = 65_536;
/** Clients may put it where they have no signature. */
const NO_SIGNATURE = "skip_thought_signature_validator";

interface GeminiModel {
  rates: Rates;
  cacheTokensMin: number;
  /** The first call of each step has to carry its signature. */
  isSigned: boolean;
}

export const GEMINI_MODELS: Record<string, GeminiModel> = {
  "gemini-3.8-flash": {
    rates: { input: 0.75, cached: 0.075, output: 3.75 },
    cacheTokensMin: 1_024,
    isSigned: true,
  },
  "gemini-2.5-pro": {
    rates: {
      ...{ input: 1.25, cached: 0.125, output: 10 },
      above: { promptTokens: 200_000, rates: { input: 2.5, cached: 0.25, output: 15 } },
    },
    cacheTokensMin: 2_048,
    isSigned: false,
  },
};

const FIELDS = new Set([
  ...["model", "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig"],
  ...["cachedContent", "serviceTier", "labels", "store"],
]);
const CONFIG_FIELDS = new Set([
  ...["temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "seed"],
  ...["presencePenalty", "frequencyPenalty", "responseMimeType", "responseSchema", "responseJsonSchema"],
  ...["responseLogprobs", "logprobs", "responseModalities", "thinkingConfig", "mediaResolution"],
  ...["speechConfig", "imageConfig", "enableEnhancedCivicAnswers"],
]);

const STATUSES: Record<number, string> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
};

function refuse(message: string, code = 400, details: Json[] = []): never {
  throw new Refusal(code, { error: { code, message, status: STATUSES[code], details } });
}

export function startGemini(options: VendorOptions = {}): FakeVendor {
  return startVendor("AIza-fake", options, (desk) => async (exchange) => {
    const { request, reply } = exchange;
    const { pathname, searchParams } = new URL(request.path, "http://fake");
    authorize(
      desk,
      request.headers["x-goog-api-key"] ?? searchParams.get("key"),
      request.headers.authorization,
    );
    const path = /^\/v1(?:beta|alpha)?\/models(?:\/(.+))?$/.exec(pathname) ?? refuse("Not found", 404);
    const [id = "", method] = (path[1] ?? "").split(":");
    if (request.method === "GET")
      return reply.json(id === "" ? { models: Object.keys(GEMINI_MODELS).map(described) } : described(id));
    if (GEMINI_MODELS[id] === undefined)
      refuse(`models/${id} is not found for API version v1beta, or is not supported for ${method}.`, 404);
    const body = request.json;
    if (method === "countTokens")
      return reply.json({ totalTokens: tokensOf(promptOf(body.generateContentRequest ?? body)) });
    if (method === "embedContent") return reply.json({ embedding: vectorOf(body) });
    if (method === "batchEmbedContents") return reply.json({ embeddings: body.requests.map(vectorOf) });
    if (method !== "generateContent" && method !== "streamGenerateContent") refuse("Not found", 404);
    checkRequest(desk, body, id);
    const isSse = searchParams.get("alt") === "sse";
    await generate(desk, exchange, { id, isStream: method === "streamGenerateContent", isSse });
  });
}

/** A bad key is a 400 here. */
function authorize(desk: Desk, key: string | null, bearer: string | undefined): void {
  if (key === desk.apiKey) return;
  if (key !== null)
    refuse("API key not valid. Please pass a valid API key.", 400, [
      {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        reason: "API_KEY_INVALID",
        domain: "googleapis.com",
      },
    ]);
  if (bearer !== undefined)
    refuse("Request had invalid authentication credentials. Expected OAuth 2 access token.", 401);
  refuse("Method doesn't allow unregistered callers. Please use API Key.", 403);
}

function described(id: string) {
  if (GEMINI_MODELS[id] === undefined) refuse(`models/${id} is not found.`, 404);
  return {
    name: `models/${id}`,
    version: "001",
    displayName: id,
    inputTokenLimit: 1_048_576,
    outputTokenLimit: OUTPUT_TOKENS_MAX,
    supportedGenerationMethods: ["generateContent", "countTokens"],
    thinking: true,
  };
}

const vectorOf = ({ content }: Json) => ({ values: [tokensOf(JSON.stringify(content)), 0.5, -1.25] });

const hasPart = (content: Json, kind: string): boolean => content.parts.some((part: Json) => part[kind]);

function checkRequest(desk: Desk, body: Json, id: string): void {
  const unknown = (given: Json, known: Set<string>, at: string) => {
    const field = Object.keys(given ?? {}).find((name) => !known.has(name));
    if (field) refuse(`Invalid JSON payload received. Unknown name "${field}"${at}: Cannot find field.`);
  };
  unknown(body, FIELDS, "");
  unknown(body.generationConfig, CONFIG_FIELDS, " at 'generation_config'");
  const { thinkingBudget, thinkingLevel } = body.generationConfig?.thinkingConfig ?? {};
  if (thinkingBudget !== undefined && thinkingLevel !== undefined)
    refuse("You can only set only one of thinking budget and thinking level.");
  if (!body.contents?.length) refuse("* GenerateContentRequest.contents: contents is not specified");
  for (const { role, parts } of body.contents) {
    if (role !== undefined && !["user", "model"].includes(role))
      refuse("Please use a valid role: user, model.");
    if (!parts?.length)
      refuse("* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.");
  }
  checkCalls(body.contents);
  checkSignatures(desk, body.contents, id);
}

/** Every call is answered in the next content, and nothing else is. */
function checkCalls(contents: readonly Json[]): void {
  const count = (at: number, kind: string) =>
    contents[at]?.parts.filter((part: Json) => part[kind]).length ?? 0;
  for (const at of contents.keys())
    if (count(at, "functionResponse") > 0 && count(at - 1, "functionCall") === 0)
      refuse("Please ensure that function response turn comes immediately after a function call turn.");
  for (const at of contents.keys())
    if (count(at, "functionCall") !== count(at + 1, "functionResponse"))
      refuse(
        "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
      );
}

/** Signatures are asked for from the newest message of the user on; a wrong one is refused everywhere. */
function checkSignatures(desk: Desk, contents: readonly Json[], id: string): void {
  const newest = contents.findLastIndex(
    (content) => content.role !== "model" && !hasPart(content, "functionResponse"),
  );
  contents.forEach((content, at) => {
    for (const { thoughtSignature, functionCall } of content.parts) {
      if (functionCall?.thoughtSignature)
        refuse(
          `Invalid JSON payload received. Unknown name "thoughtSignature" at 'contents[${at}].parts[0].function_call': Cannot find field.`,
        );
      const isKnown = thoughtSignature === undefined || thoughtSignature === NO_SIGNATURE;
      if (!isKnown && desk.seals.open(unwrapped(thoughtSignature))?.[0] !== id)
        refuse("Thought signature is not valid.");
    }
    const first = content.parts.find(({ functionCall }: Json) => functionCall);
    if (GEMINI_MODELS[id]?.isSigned && at > newest && first && first.thoughtSignature === undefined)
      refuse(
        `Function call is missing a thought_signature in functionCall parts. Function call \`default_api:${first.functionCall.name}\`, position ${at + 1}.`,
      );
  });
}

/** They are bytes, so they travel as base64. */
const wrapped = (seal: string): string => Buffer.from(seal).toString("base64");
const unwrapped = (signature: string): string => Buffer.from(String(signature), "base64").toString();

const promptOf = ({ tools = [], systemInstruction, contents = [] }: Json): string =>
  [...tools, ...(systemInstruction ? [systemInstruction] : []), ...contents]
    .map((part: Json) => JSON.stringify(part))
    .join("\n");

interface Asked {
  id: string;
  isStream: boolean;
  isSse: boolean;
}

async function generate(desk: Desk, exchange: Exchange, { id, isStream, isSse }: Asked): Promise<void> {
  const { json: body } = exchange.request;
  const model = GEMINI_MODELS[id] as GeminiModel;
  const config = body.generationConfig ?? {};
  const mode = body.toolConfig?.functionCallingConfig?.mode;
  const declared = (body.tools ?? []).flatMap(({ functionDeclarations = [] }: Json) => functionDeclarations);
  const turn = within(
    desk.script({
      model: id,
      step: body.contents.filter(({ role }: Json) => role === "model").length,
      tools: mode === "NONE" ? [] : declared.map(({ name }: Json) => name),
    }),
    config.maxOutputTokens ?? OUTPUT_TOKENS_MAX,
  );
  const { promptTokens, cachedTokens, commit } = readBySteps(desk.cache, {
    scope: id,
    prompt: promptOf(body),
    minTokens: model.cacheTokensMin,
    stepTokens: CACHE_STEP_TOKENS,
    ttlMs: CACHE_TTL_MS,
  });
  commit();
  const [thoughts, spoken] = [thinkingTokens(turn), spokenTokens(turn)];
  const usageMetadata = {
    promptTokenCount: promptTokens,
    ...(cachedTokens > 0 && { cachedContentTokenCount: cachedTokens }),
    candidatesTokenCount: spoken,
    ...(thoughts > 0 && { thoughtsTokenCount: thoughts }),
    totalTokenCount: promptTokens + spoken + thoughts,
    promptTokensDetails: [{ modality: "TEXT", tokenCount: promptTokens }],
  };
  const responseId = desk.nextId("resp");
  const charge = (share: number) =>
    desk.bill.add(
      {
        ...{ id: responseId, model: id, fresh: promptTokens - cachedTokens, cached: cachedTokens },
        ...{ write5m: 0, write1h: 0, output: Math.ceil((thoughts + spoken) * share) },
      },
      model.rates,
    );
  const signature = () => wrapped(desk.seals.seal(id, desk.nextId("thought")));
  const thought =
    config.thinkingConfig?.includeThoughts && turn.thinking ? [{ text: turn.thinking, thought: true }] : [];
  const calls = (turn.calls ?? []).map(({ name, args }, index) => ({
    functionCall: { id: desk.nextId("fc"), name, args },
    ...(index === 0 && model.isSigned && { thoughtSignature: signature() }),
  }));
  const finishReason = turn.isCut ? "MAX_TOKENS" : "STOP";
  const answer = (parts: Json[], rest: Json = {}, usage: Json = usageMetadata) => ({
    candidates: [{ content: { parts, role: "model" }, index: 0, ...rest }],
    usageMetadata: usage,
    modelVersion: id,
    responseId,
  });
  if (!isStream) {
    charge(1);
    const text = turn.text ? [{ text: turn.text }] : [];
    return exchange.reply.json(answer([...thought, ...text, ...calls], { finishReason }));
  }
  const counting = { promptTokenCount: promptTokens, totalTokenCount: promptTokens };
  const chunks = [
    ...thought.map((part) => answer([part], {}, counting)),
    ...words(turn.text ?? "").map((text) => answer([{ text }], {}, counting)),
    answer(calls.length > 0 ? calls : [{ text: "" }], { finishReason }),
  ];
  if (isSse) {
    const pieces = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\r\n\r\n`);
    return desk.stream(exchange, { pieces, ended: charge });
  }
  const pieces = chunks.map((chunk, index) => `${index === 0 ? "[" : ",\r\n"}${JSON.stringify(chunk)}`);
  return desk.stream(exchange, {
    pieces: [...pieces, "]"],
    headers: { "content-type": "application/json; charset=UTF-8" },
    ended: charge,
  });
}
