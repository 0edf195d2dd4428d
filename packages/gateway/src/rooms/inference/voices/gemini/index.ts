import { isObject, readJson } from "../../../../kernel/json.ts";
import { geminiSpend } from "../../request/fields.ts";
import { Payload } from "../../request/payload.ts";
import { invalid } from "../given.ts";
import { idToken, type ReadRequest, type RequestContext, type Voice } from "../voice.ts";
import { chatBodyOfGemini } from "./request.ts";
import { errorBody, GeminiSpeaker } from "./speaker.ts";

const CONFIG = "generationConfig";

export interface GeminiCall {
  model: string;
  stream: boolean;
  isArray: boolean;
}

function translated(body: unknown, call: GeminiCall, { requestId }: RequestContext): ReadRequest {
  const config = isObject(body) && isObject(body[CONFIG]) ? body[CONFIG] : {};
  const thinking = isObject(config.thinkingConfig) ? config.thinkingConfig : {};
  const { model, isArray } = call;
  const thoughts = thinking.includeThoughts === true;
  const payload = new Payload(chatBodyOfGemini(body, call));
  payload.wantsThoughts = thoughts;
  return {
    payload,
    speaker: new GeminiSpeaker({ model, responseId: idToken(requestId), thoughts, isArray }),
  };
}

export const GEMINI_FORM = { errorBody, keyHeader: "x-goog-api-key" };

/** Google's Gemini API. The path names model and answer form, so there is a voice for each call. */
export const geminiVoice = (call: GeminiCall): Voice => ({
  routes: {},
  ...GEMINI_FORM,
  async read(bytes, context) {
    if (call.isArray || !context.isSpoken("gemini")) return translated(await readJson(bytes), call, context);
    const payload = await Payload.read(bytes, CONFIG);
    const inBody = payload.value("model") ?? call.model;
    if (inBody !== call.model && inBody !== `models/${call.model}`)
      invalid("model", "must be the model of the path");
    return {
      native: {
        dialect: "gemini",
        payload,
        model: call.model,
        stream: call.stream,
        spend: geminiSpend(payload, CONFIG),
        limited: (tokens) => {
          const config = { ...(payload.value(CONFIG) as object | undefined), maxOutputTokens: tokens };
          return new Map([[CONFIG, JSON.stringify(config)]]);
        },
      },
      translated: () => translated(payload.object(), call, context),
    };
  },
});
