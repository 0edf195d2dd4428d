import { isObject } from "../../../../kernel/json.ts";
import { thoughtsIn } from "../../../../kernel/own-thoughts.ts";
import {
  type ChatBody,
  type ChatPart,
  type ChatTool,
  chatTool,
  dataUrl,
  functionChoice,
  GATEWAY_FIELDS,
  imagePart,
  schemaFormat,
  streamFields,
  textPart,
} from "../chat-body.ts";
import { ChatMessages } from "../chat-messages.ts";
import { Given, invalid } from "../given.ts";

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
  const body = Given.body(value);
  const { cachedContent, generationConfig, toolConfig } = body.fields;
  if (cachedContent != null)
    body.refuse("cachedContent", "nothing is cached here: send the contents themselves");
  const chat: ChatBody = { model, messages: chatMessages(body), ...body.pick(GATEWAY_FIELDS) };
  const tools = body.objectsIfAny("tools").flatMap(functionsOf);
  if (tools.length > 0) Object.assign(chat, { tools }, toolChoice(toolConfig));
  if (generationConfig != null) addSettings(chat, body.object("generationConfig"));
  return Object.assign(chat, streamFields(stream));
}

function addSettings(chat: ChatBody, config: Given): void {
  const { fields } = config;
  for (const name in SETTINGS)
    if (fields[name] != null && fields[name] !== DEFAULTS[name]) chat[SETTINGS[name]!] = fields[name];
  if (fields.maxOutputTokens != null) chat.max_tokens = config.count("maxOutputTokens");
  if ((fields.candidateCount ?? 1) !== 1) config.refuse("candidateCount", "must be 1 for this model");
  if (fields.responseLogprobs === true) config.refuse("responseLogprobs", "cannot be passed to this model");
  const { responseModalities: modalities, responseJsonSchema, responseSchema } = fields;
  if (Array.isArray(modalities) && modalities.some((each) => each !== "TEXT"))
    config.refuse("responseModalities", "must be TEXT for this model");
  if (fields.responseMimeType === "application/json") {
    const schema = responseJsonSchema ?? (responseSchema && jsonSchema(responseSchema));
    if (schema) Object.assign(chat, schemaFormat({ name: "answer", schema }));
    else chat.response_format = { type: "json_object" };
  }
  const thinking = isObject(fields.thinkingConfig) ? fields.thinkingConfig : {};
  const { thinkingLevel: level, thinkingBudget: budget } = thinking;
  if (typeof level === "string") chat.reasoning_effort = level.toLowerCase();
  // A budget of -1 lets the model decide.
  else if (typeof budget === "number" && budget >= 0)
    chat.reasoning_effort = EFFORTS.find(([most]) => budget <= most)?.[1] ?? "high";
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

function functionsOf(tool: Given): ChatTool[] {
  const other = Object.keys(tool.fields).find((name) => name !== "functionDeclarations");
  if (other) tool.refuse(other, "is run by Google's servers and does not exist here");
  return tool.objectsIfAny("functionDeclarations").map((declared) => {
    const { description, parametersJsonSchema, parameters: own } = declared.fields;
    const parameters = parametersJsonSchema ?? (own ? jsonSchema(own) : null);
    return chatTool(declared.string("name"), { description, parameters });
  });
}

function toolChoice(given: unknown): Record<string, unknown> {
  const config = isObject(given) && isObject(given.functionCallingConfig) ? given.functionCallingConfig : {};
  const { mode, allowedFunctionNames: names } = config;
  if (mode === "NONE") return { tool_choice: "none" };
  if (mode !== "ANY") return {};
  const isOne = Array.isArray(names) && names.length === 1;
  return { tool_choice: isOne ? functionChoice(names[0]) : "required" };
}

/** A call without a result yet. Some clients send ids for neither. */
interface OpenCall {
  id: string;
  name: string;
}

function chatMessages(body: Given) {
  const messages = new ChatMessages();
  if (body.fields.systemInstruction != null) messages.system(systemText(body));
  const open: OpenCall[] = [];
  for (const content of body.objects("contents")) {
    const { role = "user" } = content.fields;
    const parts = content.objects("parts");
    if (role === "model") addModel(messages, { content, parts, open });
    else if (role === "user" || role === "function") addUser(messages, { parts, open });
    else content.refuse("role", 'must be "user" or "model"');
  }
  const done = messages.done();
  if (done.length === 0) body.refuse("contents", "needs at least one content");
  return done;
}

function systemText(body: Given): string {
  const { systemInstruction: system } = body.fields;
  if (typeof system === "string") return system;
  const parts = body.object("systemInstruction").objects("parts");
  return parts.map((part) => part.string("text")).join("\n\n");
}

interface Parts {
  parts: readonly Given[];
  open: OpenCall[];
}

function addModel(messages: ChatMessages, { content, parts, open }: Parts & { content: Given }): void {
  const signatures = parts.flatMap(({ fields }) => fields.thoughtSignature ?? []);
  messages.reasoning(signatures.map((signature) => thoughtsIn(signature) ?? "").join(""));
  for (const [i, part] of parts.entries()) {
    const { functionCall, text, thought } = part.fields;
    if (isObject(functionCall)) {
      const { id: given, args } = functionCall;
      const id = typeof given === "string" ? given : `${content.place}.${i}`;
      const name = part.object("functionCall").string("name");
      open.push({ id, name });
      messages.toolCall({ id, name, arguments: JSON.stringify(args ?? {}) });
    } else if (text === undefined)
      invalid(part.place, "cannot be passed to this model: it is no text and no call");
    else if (thought === true) {
      // Signed thoughts can only be read by Google.
      if (signatures.length === 0) messages.reasoning(part.string("text"));
    } else messages.assistant(part.string("text"));
  }
}

function addUser(messages: ChatMessages, { parts, open }: Parts): void {
  // Results first, because they must directly follow their calls.
  for (const { fields, place } of parts) {
    if (!isObject(fields.functionResponse)) continue;
    const { id, name, response } = fields.functionResponse;
    const index = open.findIndex((call) => (typeof id === "string" ? call.id === id : call.name === name));
    const [call] = index === -1 ? [] : open.splice(index, 1);
    const callId = call?.id ?? (typeof id === "string" ? id : invalid(place, "answers no call"));
    messages.toolResult({ callId, parts: [textPart(resultText(response))] });
  }
  messages.user(parts.filter(({ fields }) => !isObject(fields.functionResponse)).map(userPart));
}

/** Google's clients wrap plain text into an object. */
function resultText(response: unknown): string {
  const only =
    isObject(response) && Object.keys(response).length === 1 ? (response.output ?? response.result) : null;
  return typeof only === "string" ? only : JSON.stringify(response ?? {});
}

function userPart(part: Given): ChatPart {
  if (part.fields.text !== undefined) return textPart(part.string("text"));
  if (!isObject(part.fields.inlineData))
    return invalid(
      part.place,
      "must have text, inlineData or functionResponse: files are not fetched or kept here",
    );
  const file = part.object("inlineData");
  const [mimeType, data] = [file.string("mimeType"), file.string("data")];
  if (mimeType.startsWith("audio/"))
    return { type: "input_audio", input_audio: { data, format: mimeType.slice("audio/".length) } };
  const url = dataUrl(mimeType, data);
  return mimeType.startsWith("image/") ? imagePart(url) : { type: "file", file: { file_data: url } };
}
