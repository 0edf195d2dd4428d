import { z } from "zod";
import { fail } from "../../../../kernel/errors.ts";
import { isObject, readJson } from "../../../../kernel/json.ts";
import { type AnyRoute, BODY_BYTES_MAX, defineRoute, raw } from "../../../../kernel/route.ts";
import { Payload } from "../../request/payload.ts";
import { Given, invalid, textsIn } from "../given.ts";
import { promptTokens } from "../prompt-tokens.ts";
import { jsonReplyIn } from "../replies.ts";
import { GEMINI_FORM, geminiVoice } from "./index.ts";
import { chatBodyOfGemini } from "./request.ts";

const Model = z.looseObject({
  name: z.string().describe("`models/` and the id"),
  displayName: z.string(),
  supportedGenerationMethods: z.array(z.string()),
});

const modelOf = ({ id }: { id: string }) => ({
  name: `models/${id}`,
  version: "001",
  displayName: id,
  supportedGenerationMethods: ["generateContent", "countTokens", "embedContent"],
});

export const geminiModels = defineRoute({
  method: "GET",
  path: "/v1beta/models",
  summary: "Models, as Google's Gemini API lists them",
  auth: "public",
  response: z.object({ models: z.array(Model) }),
  handler: ({ rooms }) => ({ models: rooms.inference.models.available().map(modelOf) }),
});

export const geminiModel = defineRoute({
  method: "GET",
  path: "/v1beta/models/{model}",
  summary: "One of these models",
  auth: "public",
  response: Model,
  handler: ({ rooms, path }) => modelOf(rooms.inference.models.one(path.model)),
});

/** The text of the content in a request for vectors. */
function textOf(request: Given): string {
  const content = request.object("content");
  const isText = (part: unknown): part is { text: string } => isObject(part) && typeof part.text === "string";
  const parts = content.list("parts");
  return parts.every(isText) ? textsIn(parts) : invalid(content.place, "must be text");
}

/** Translates a request for vectors, of one content or several. */
async function readEmbeddings(bytes: Buffer, model: string, isBatch: boolean) {
  const body = Given.body(await readJson(bytes));
  const requests = isBatch ? body.objects("requests") : [body];
  const dimensions = requests[0]?.fields.outputDimensionality;
  const input = requests.map(textOf);
  const payload = new Payload({ model, input, ...(dimensions != null && { dimensions }) });
  const write = ({ data }: { data: { embedding: number[] | string }[] }) => {
    const vectors = data.map(({ embedding }) => ({ values: embedding }));
    return isBatch ? { embeddings: vectors } : { embedding: vectors[0] };
  };
  return { payload, write };
}

export const geminiCall: AnyRoute = defineRoute({
  method: "POST",
  path: "/v1beta/models/{call}",
  summary:
    "Google's Gemini API over the chat path: `{model}:generateContent`, `:streamGenerateContent`, `:countTokens` (estimated; costs nothing), `:embedContent`, `:batchEmbedContents`",
  auth: "api_key",
  keyHeader: GEMINI_FORM.keyHeader,
  keyQuery: "key",
  recorded: true,
  body: raw(z.looseObject({ contents: z.array(z.looseObject({})).optional() })),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(z.looseObject({ candidates: z.array(z.looseObject({})).optional() })),
  handler: async (call) => {
    const { inference } = call.rooms;
    const { request, requestId, body } = call;
    const [, model, method] = /^(?:models\/)?(.*):(\w+)$/.exec(call.path.call) ?? [];
    if (!model) return fail("not_found", "the path is /v1beta/models/{model}:{method}");
    switch (method) {
      case "generateContent":
        return inference.speak(geminiVoice({ model, stream: false, isArray: false }), {}, call);
      case "streamGenerateContent": {
        const isArray = new URLSearchParams(request.search).get("alt") !== "sse";
        return inference.speak(geminiVoice({ model, stream: true, isArray }), {}, call);
      }
      case "countTokens": {
        const { fields: asked } = Given.body(await readJson(body));
        const chat = chatBodyOfGemini(asked.generateContentRequest ?? asked, { model, stream: false });
        return jsonReplyIn(GEMINI_FORM, { totalTokens: promptTokens(chat) }, requestId);
      }
      case "embedContent":
      case "batchEmbedContents":
        return inference.embeddings(call, (bytes) => readEmbeddings(bytes, model, method !== "embedContent"));
      default:
        return fail("not_found", `there is no method ${method?.slice(0, 64)}`);
    }
  },
  refuse: (error, call) => call.rooms.inference.refuse(error, call, { form: GEMINI_FORM, isRequest: true }),
});
