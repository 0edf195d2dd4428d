import { isObject } from "../../../../kernel/json.ts";
import { thoughtsIn } from "../../../../kernel/own-thoughts.ts";
import {
  arrayAt,
  type ChatBody,
  type ChatPart,
  type ChatTool,
  countAt,
  GATEWAY_FIELDS,
  invalid,
  objectAt,
  pick,
  streamFields,
  stringAt,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";

type Json = Record<string, unknown>;

const SETTINGS: Readonly<Record<string, string>> = {
  temperature: "temperature",
  topP: "top_p",
  topK: "top_k",
  seed: "seed",
  presencePenalty: "presence_penalty",
  frequencyPenalty: "frequency_penalty",
  stopSequences: "stop",
};
/** Google's clients always send Google's defaults; they are left out, because other models have their own. */
const DEFAULTS: Readonly<Record<string, number>> = { temperature: 1, topP: 0.95, topK: 64 };
/** The largest thinking budget for each effort. */
const EFFORTS: readonly [number, string][] = [
  [0, "none"],
  [1_024, "low"],
  [8_192, "medium"],
];

export function chatBodyOfGemini(
  value: unknown,
  { model, stream }: { model: string; stream: boolean },
): ChatBody {
  const body = objectAt(value, "body");
  if (body.cachedContent != null)
    invalid("cachedContent", "nothing is cached here: send the contents themselves");
  const chat: ChatBody = { model, messages: chatMessages(body), ...pick(body, GATEWAY_FIELDS) };
  const tools = functionsOf(body.tools);
  if (tools.length > 0) Object.assign(chat, { tools }, toolChoice(body.toolConfig));
  if (body.generationConfig != null)
    Object.assign(chat, settingsOf(objectAt(body.generationConfig, "generationConfig")));
  Object.assign(chat, streamFields(stream));
  return chat;
}

function settingsOf(config: Json): Json {
  const chat: Json = {};
  for (const name in SETTINGS)
    if (config[name] != null && config[name] !== DEFAULTS[name]) chat[SETTINGS[name]!] = config[name];
  if (config.maxOutputTokens != null)
    chat.max_tokens = countAt(config.maxOutputTokens, "generationConfig.maxOutputTokens");
  if ((config.candidateCount ?? 1) !== 1)
    invalid("generationConfig.candidateCount", "must be 1 for this model");
  if (config.responseLogprobs === true)
    invalid("generationConfig.responseLogprobs", "cannot be passed to this model");
  const { responseModalities: modalities } = config;
  if (Array.isArray(modalities) && modalities.some((each) => each !== "TEXT"))
    invalid("generationConfig.responseModalities", "must be TEXT for this model");
  if (config.responseMimeType === "application/json") {
    const schema = config.responseJsonSchema ?? (config.responseSchema && jsonSchema(config.responseSchema));
    chat.response_format = schema
      ? { type: "json_schema", json_schema: { name: "answer", schema } }
      : { type: "json_object" };
  }
  const thinking = isObject(config.thinkingConfig) ? config.thinkingConfig : {};
  if (typeof thinking.thinkingLevel === "string")
    chat.reasoning_effort = thinking.thinkingLevel.toLowerCase();
  // A budget of -1 lets the model decide.
  else if (typeof thinking.thinkingBudget === "number" && thinking.thinkingBudget >= 0) {
    const budget = thinking.thinkingBudget;
    chat.reasoning_effort = EFFORTS.find(([most]) => budget <= most)?.[1] ?? "high";
  }
  return chat;
}

/** Gemini's own schemas spell types in capitals. */
function jsonSchema(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(jsonSchema);
  if (!isObject(schema)) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) => [
      name,
      name === "type" && typeof value === "string" ? value.toLowerCase() : jsonSchema(value),
    ]),
  );
}

function functionsOf(given: unknown): ChatTool[] {
  if (given == null) return [];
  return arrayAt(given, "tools").flatMap((one, i) => {
    const { functionDeclarations, ...others } = objectAt(one, `tools.${i}`);
    const [other] = Object.keys(others);
    if (other) invalid(`tools.${i}.${other}`, "is run by Google's servers and does not exist here");
    return arrayAt(functionDeclarations ?? [], `tools.${i}.functionDeclarations`).map(
      (declared, at): ChatTool => {
        const path = `tools.${i}.functionDeclarations.${at}`;
        const { name, description, parametersJsonSchema, parameters } = objectAt(declared, path);
        return {
          type: "function",
          function: {
            name: stringAt(name, `${path}.name`),
            ...(typeof description === "string" && { description }),
            parameters:
              parametersJsonSchema ??
              (parameters ? jsonSchema(parameters) : { type: "object", properties: {} }),
          },
        };
      },
    );
  });
}

function toolChoice(given: unknown): Json {
  const config = isObject(given) && isObject(given.functionCallingConfig) ? given.functionCallingConfig : {};
  const { mode, allowedFunctionNames: names } = config;
  if (mode === "NONE") return { tool_choice: "none" };
  if (mode !== "ANY") return {};
  if (Array.isArray(names) && names.length === 1)
    return { tool_choice: { type: "function", function: { name: names[0] } } };
  return { tool_choice: "required" };
}

/** A call without a result yet. Some clients send ids for neither. */
interface OpenCall {
  id: string;
  name: string;
}

function chatMessages(body: Json) {
  const messages = new ChatMessages();
  const system = body.systemInstruction;
  if (system != null) messages.system(systemText(system));
  const open: OpenCall[] = [];
  for (const [i, one] of arrayAt(body.contents, "contents").entries()) {
    const path = `contents.${i}`;
    const content = objectAt(one, path);
    const parts = arrayAt(content.parts, `${path}.parts`).map((part, at) =>
      objectAt(part, `${path}.parts.${at}`),
    );
    if (content.role === "model") addModel(messages, parts, { path, open });
    else if (content.role === undefined || content.role === "user" || content.role === "function")
      addUser(messages, parts, { path, open });
    else invalid(`${path}.role`, 'must be "user" or "model"');
  }
  const done = messages.done();
  if (done.length === 0) invalid("contents", "needs at least one content");
  return done;
}

function systemText(system: unknown): string {
  if (typeof system === "string") return system;
  const { parts } = objectAt(system, "systemInstruction");
  return arrayAt(parts, "systemInstruction.parts")
    .map((part, i) =>
      stringAt(objectAt(part, `systemInstruction.parts.${i}`).text, `systemInstruction.parts.${i}.text`),
    )
    .join("\n\n");
}

interface At {
  path: string;
  open: OpenCall[];
}

function addModel(messages: ChatMessages, parts: readonly Json[], { path, open }: At): void {
  const signatures = parts.flatMap(({ thoughtSignature }) => thoughtSignature ?? []);
  const sealed = signatures.map((signature) => thoughtsIn(signature) ?? "").join("");
  if (sealed) messages.reasoning(sealed);
  for (const [i, part] of parts.entries()) {
    const at = `${path}.parts.${i}`;
    if (isObject(part.functionCall)) {
      const { id, name, args } = part.functionCall;
      const call = {
        id: typeof id === "string" ? id : `${path}.${i}`,
        name: stringAt(name, `${at}.functionCall.name`),
      };
      open.push(call);
      messages.toolCall({
        id: call.id,
        function: { name: call.name, arguments: JSON.stringify(args ?? {}) },
      });
    } else if (part.text === undefined)
      invalid(at, "cannot be passed to this model: it is no text and no call");
    else if (part.thought === true) {
      // Signed thoughts can only be read by Google.
      if (signatures.length === 0) messages.reasoning(stringAt(part.text, `${at}.text`));
    } else messages.assistant(stringAt(part.text, `${at}.text`));
  }
}

function addUser(messages: ChatMessages, parts: readonly Json[], { path, open }: At): void {
  // Results first, because they must directly follow their calls.
  for (const [i, { functionResponse }] of parts.entries()) {
    if (!isObject(functionResponse)) continue;
    const { id, name, response } = functionResponse;
    const index = open.findIndex((call) => (typeof id === "string" ? call.id === id : call.name === name));
    const [call] = index === -1 ? [] : open.splice(index, 1);
    const callId =
      call?.id ?? (typeof id === "string" ? id : invalid(`${path}.parts.${i}`, "answers no call"));
    messages.toolResult({ callId, parts: [{ type: "text", text: resultText(response) }] });
  }
  messages.user(
    parts.flatMap((part, i) =>
      isObject(part.functionResponse) ? [] : [userPart(part, `${path}.parts.${i}`)],
    ),
  );
}

/** Google's clients wrap plain text into an object. */
function resultText(response: unknown): string {
  const only =
    isObject(response) && Object.keys(response).length === 1 ? (response.output ?? response.result) : null;
  return typeof only === "string" ? only : JSON.stringify(response ?? {});
}

function userPart(part: Json, path: string): ChatPart {
  if (part.text !== undefined) return { type: "text", text: stringAt(part.text, `${path}.text`) };
  if (isObject(part.inlineData)) {
    const mimeType = stringAt(part.inlineData.mimeType, `${path}.inlineData.mimeType`);
    const data = stringAt(part.inlineData.data, `${path}.inlineData.data`);
    if (mimeType.startsWith("audio/"))
      return { type: "input_audio", input_audio: { data, format: mimeType.slice("audio/".length) } };
    const url = `data:${mimeType};base64,${data}`;
    if (mimeType.startsWith("image/")) return { type: "image_url", image_url: { url } };
    return { type: "file", file: { file_data: url } };
  }
  return invalid(path, "must have text, inlineData or functionResponse: files are not fetched or kept here");
}
