import { chat } from "../chat/index.ts";
import type { Dialect } from "../dialect.ts";
import { ResponsesStream, responsesAnswer } from "./answer.ts";
import { mended, ResponsesReader } from "./reader.ts";
import { responsesRequest } from "./request.ts";

export const responses: Dialect = {
  ...chat,
  name: "responses",
  path: () => "/responses",
  translation: {
    request: responsesRequest,
    answer: responsesAnswer,
    stream: () => new ResponsesStream(),
  },
  native: {
    limitField: "max_output_tokens",
    // Not those that choose the organisation or the project: these are the operator's.
    requestHeaders:
      /^(openai-beta|idempotency-key|(session|thread|conversation)[-_]id|x-client-request-id|originator|version|x-openai-subagent|x-codex-.*|x-stainless-.*|user-agent)$/,
    answerHeaders:
      /^(x-ratelimit-.*|openai-(model|processing-ms|version)|x-codex-.*|retry-after(-ms)?|x-should-retry)$/,
    mended,
    reader: () => new ResponsesReader(),
  },
};
