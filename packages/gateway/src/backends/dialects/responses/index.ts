import { chat } from "../chat/index.ts";
import type { Dialect } from "../dialect.ts";
import { ResponsesStream, responsesAnswer } from "./answer.ts";
import { responsesRequest } from "./request.ts";

/** OpenAI's Responses. */
export const responses: Dialect = {
  ...chat,
  name: "responses",
  path: () => "/responses",
  translation: {
    request: responsesRequest,
    answer: responsesAnswer,
    stream: (identity, keep) => new ResponsesStream(identity, keep),
  },
};
