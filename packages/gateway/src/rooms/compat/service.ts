import {
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  Reply,
  replyOf,
  responseOf,
  StreamedReply,
} from "@model-gateway/wire/http";
import type { Clock } from "../../kernel/clock.ts";
import type { Principal } from "../../kernel/context.ts";
import { fail, KeyRefusal, ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { decodeUtf8, parseJson } from "../../kernel/json.ts";
import type { AnyRoute, RefusedCall, RouteCall } from "../../kernel/route.ts";
import { estimatedCounts, readAnswer } from "./chat-answer.ts";
import type { ChatBody } from "./chat-body.ts";
import type { Dialect, Turn } from "./dialect.ts";
import { readFailure } from "./failure.ts";
import { messagesDialect } from "./messages/index.ts";
import { chatBodyOfMessages } from "./messages/request.ts";
import { type Estimator, promptTokens } from "./prompt-tokens.ts";
import { responsesDialect } from "./responses/index.ts";
import { convertStream } from "./stream.ts";

/** Same as the chat path: images travel inside the body. */
export const BODY_BYTES_MAX = 32 * 1024 * 1024;
/** Names what could not be passed on, so that it is not lost in silence. */
const DROPPED_HEADER = "x-service-dropped";
const BAD_KEY = "Invalid API key: send `Authorization: Bearer service-…`, as keys.create showed it";
const STREAM_HEADERS = { "content-type": EVENT_STREAM_TYPE, ...EVENT_STREAM_HEADERS };

type BytesCall = RouteCall & { principal: Principal; body: Buffer };

/** Answers a chat-completions body like `POST /v1/chat/completions` does; a refusal may also be thrown. */
export type ChatFunction = (call: BytesCall, body: ChatBody) => Promise<Response>;

export interface CompatOptions extends Estimator {
  chat: ChatFunction;
  /** The chat path's reply to a failure. */
  refuse(error: unknown, call: RefusedCall): Reply;
  clock: Clock;
}

/** Other APIs over the chat path, which limits, routes and meters them like any chat. */
export class Compat {
  constructor(readonly options: CompatOptions) {}

  responses(call: BytesCall): Promise<Response> {
    return this.#answer(call, responsesDialect);
  }

  messages(call: BytesCall): Promise<Response> {
    return this.#answer(call, messagesDialect);
  }

  countTokens(call: BytesCall): Response {
    const chat = chatBodyOfMessages(jsonOf(call.body));
    const body = { input_tokens: promptTokens(chat, this.options) };
    return Response.json(body, { headers: headersOf(new Headers(), call, messagesDialect) });
  }

  /** A failure in the form of the API that was called. */
  async refuse(
    error: unknown,
    call: RefusedCall,
    api: "responses" | "messages" | "countTokens",
  ): Promise<Reply> {
    const dialect = api === "responses" ? responsesDialect : messagesDialect;
    let reply = toRestReply(toServiceError(error), call.requestId);
    // Not counted by the chat path: an estimate is no request of it, and a bad key has its own words here.
    if (api !== "countTokens") {
      const isBadKey = error instanceof KeyRefusal && error.kind === "auth_required";
      const badKey = () => toRestReply(new ServiceError("auth_required", BAD_KEY), call.requestId);
      reply = isBadKey ? badKey() : this.options.refuse(error, call);
    }
    return replyOf(await refusal(call, dialect, responseOf(reply))) as Promise<Reply>;
  }

  async #answer(call: BytesCall, dialect: Dialect): Promise<Response> {
    const { requestId } = call;
    const turn = dialect.begin(jsonOf(call.body), { requestId, nowMs: this.options.clock.now() });
    const response = await this.options.chat(call, turn.chat);
    return response.ok ? this.#convert(call, { dialect, turn, response }) : refusal(call, dialect, response);
  }

  async #convert(
    call: BytesCall,
    { dialect, turn, response }: { dialect: Dialect; turn: Turn; response: Response },
  ): Promise<Response> {
    const headers = headersOf(response.headers, call, dialect);
    if (turn.dropped.length > 0) headers.set(DROPPED_HEADER, turn.dropped.map(headerSafe).join(", "));
    const estimate = (answerBytes: number) =>
      estimatedCounts(promptTokens(turn.chat, this.options), answerBytes);
    if (!turn.chat.stream) {
      return Response.json(turn.whole(readAnswer(await response.json(), estimate)), { headers });
    }
    if (!response.body) fail("bad_gateway", "The chat path answered without a stream");
    for (const [name, value] of Object.entries(STREAM_HEADERS)) headers.set(name, value);
    const { clock } = this.options;
    const stream = convertStream({ source: response.body, writer: turn.writer(), clock, estimate });
    return new Response(stream, { headers });
  }
}

const jsonOf = (body: Buffer): unknown => parseJson(decodeUtf8(body));

const headerSafe = (name: string): string => name.replace(/[^\w.-]/g, "").slice(0, 64);

/** Describe the body, not the answer: they are another answer's. */
const BODY_HEADERS = ["content-type", "content-length", "content-encoding", "transfer-encoding"] as const;

/** What the chat path said about the request, e.g. its id and limits, without what it said of its body. */
function headersOf(source: Headers, call: RefusedCall, { requestIdHeader }: Dialect): Headers {
  const headers = new Headers(source);
  for (const name of BODY_HEADERS) headers.delete(name);
  if (!headers.has("x-request-id")) headers.set("x-request-id", call.requestId);
  if (requestIdHeader) headers.set(requestIdHeader, headers.get("x-request-id")!);
  return headers;
}

async function refusal(call: RefusedCall, dialect: Dialect, response: Response): Promise<Response> {
  const failure = await readFailure(response);
  const headers = headersOf(response.headers, call, dialect);
  return Response.json(dialect.errorBody(failure, headers.get("x-request-id")!), {
    status: response.status,
    headers,
  });
}

/** The chat path as a function: its route's handler, given the converted body. */
export function throughRoute(route: AnyRoute): ChatFunction {
  return async (call, body) => {
    const result = await route.handler({ ...call, body: Buffer.from(JSON.stringify(body)) });
    if (result instanceof Reply || result instanceof StreamedReply) return responseOf(result);
    return result as Response;
  };
}
