import { type Dialect, idToken } from "../dialect.ts";
import { errorBody } from "./errors.ts";
import { convertRequest } from "./request.ts";
import { type ResponseIdentity, responseOf } from "./response.ts";
import { ResponseWriter } from "./stream.ts";

/** OpenAI's Responses API. */
export const responsesDialect: Dialect = {
  begin(body, { requestId, nowMs }) {
    const { chat, clientTools, dropped } = convertRequest(body);
    const identity: ResponseIdentity = {
      token: idToken(requestId),
      createdSeconds: Math.floor(nowMs / 1000),
      request: body as Record<string, unknown>,
      clientTools,
    };
    return {
      chat,
      dropped,
      whole: (answer) => responseOf(identity, answer),
      writer: () => new ResponseWriter(identity),
    };
  },
  errorBody,
};
