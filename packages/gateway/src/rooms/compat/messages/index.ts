import { type Dialect, idToken } from "../dialect.ts";
import { errorBody } from "./errors.ts";
import { chatBodyOfMessages, wantsThinking } from "./request.ts";
import { messageOf } from "./response.ts";
import { MessageWriter } from "./stream.ts";

/** Anthropic's Messages API. */
export const messagesDialect: Dialect = {
  begin(body, { requestId }) {
    const options = { id: `msg_${idToken(requestId)}`, thinking: wantsThinking(body) };
    return {
      chat: chatBodyOfMessages(body),
      dropped: [],
      whole: (answer) => messageOf(answer, options),
      writer: () => new MessageWriter(options),
    };
  },
  errorBody: (failure, requestId) => ({ ...errorBody(failure), request_id: requestId }),
  requestIdHeader: "request-id",
};
