import { isObject } from "../../../kernel/json.ts";
import { apiBase, type Dialect, modelsOfListing } from "../dialect.ts";
import { MessagesStream, messagesAnswer } from "./answer.ts";
import { MessagesReader, mended } from "./reader.ts";
import { messagesRequest, usualOutputTokens } from "./request.ts";

const VERSION = "2023-06-01";

export const messages: Dialect = {
  name: "messages",
  base: (url) => apiBase(url),
  path: () => "/messages",
  auth: "x-api-key",
  headers: { "anthropic-version": VERSION },
  listing: {
    path: "/models?limit=1000",
    models: modelsOfListing,
    next: (body) =>
      isObject(body) && body.has_more === true && typeof body.last_id === "string"
        ? `/models?limit=1000&after_id=${encodeURIComponent(body.last_id)}`
        : null,
  },
  translation: {
    request: messagesRequest,
    answer: messagesAnswer,
    stream: () => new MessagesStream(),
    usualOutputTokens,
  },
  native: {
    limitField: "max_tokens",
    requestHeaders: /^(anthropic-.*|idempotency-key|x-claude-code-.*|x-stainless-.*|x-app|user-agent)$/,
    answerHeaders: /^(anthropic-(ratelimit|priority|fast)-.*|retry-after|x-should-retry)$/,
    mended,
    reader: () => new MessagesReader(),
  },
};
