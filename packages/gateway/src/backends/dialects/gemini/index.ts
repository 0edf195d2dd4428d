import { isObject } from "../../../kernel/json.ts";
import { apiBase, type Dialect, modelsOfListing } from "../dialect.ts";
import { GeminiStream, geminiAnswer } from "./answer.ts";
import { GeminiReader, mended } from "./reader.ts";
import { geminiRequest } from "./request.ts";

export const gemini: Dialect = {
  name: "gemini",
  base: (url) => apiBase(url, "v1beta"),
  path: ({ model, stream }) =>
    `/models/${encodeURIComponent(model)}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
  auth: "x-goog-api-key",
  listing: {
    path: "/models?pageSize=1000",
    models: modelsOfListing,
    next: (body) =>
      isObject(body) && typeof body.nextPageToken === "string" && body.nextPageToken !== ""
        ? `/models?pageSize=1000&pageToken=${encodeURIComponent(body.nextPageToken)}`
        : null,
  },
  translation: {
    request: geminiRequest,
    answer: geminiAnswer,
    stream: () => new GeminiStream(),
  },
  native: {
    limitField: "generationConfig.maxOutputTokens",
    requestHeaders: /^(x-goog-api-client|x-gemini-.*|user-agent)$/,
    answerHeaders: /^(x-gemini-.*|server-timing|retry-after)$/,
    mended,
    reader: () => new GeminiReader(),
  },
};
