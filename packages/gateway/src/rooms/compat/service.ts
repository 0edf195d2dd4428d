import {
  bearerOf,
  DerivedRequest,
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  type HttpRequest,
  Reply,
  responseOf,
  StreamedReply,
} from "@model-gateway/wire/http";
import type { Clock } from "../../kernel/clock.ts";
import { fail, isOurs, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { decodeUtf8, parseJson } from "../../kernel/json.ts";
import type { RouteCall, RouteDefinition } from "../../kernel/route.ts";
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
const STREAM_HEADERS = { "content-type": EVENT_STREAM_TYPE, ...EVENT_STREAM_HEADERS };

/** Answers a chat-completions body like `POST /v1/chat/completions` does; a refusal may also be thrown. */
export type ChatFunction = (call: RouteCall, body: ChatBody) => Promise<Response>;

export interface CompatOptions extends Estimator {
  chat: ChatFunction;
  /** Who an API key stands for; null: nobody. */
  authenticate(secret: string): unknown;
  /** The same with the key's requests a minute counted; a Reply is the refusal. */
  requireApiKey(request: HttpRequest, requestId: string): unknown;
  clock: Clock;
}

/** Other APIs over the chat path, which authenticates, limits, routes and meters them like any chat. */
export class Compat {
  constructor(readonly options: CompatOptions) {}

  responses(call: RouteCall): Promise<Response> {
    return this.#answer(call, responsesDialect);
  }

  messages(call: RouteCall): Promise<Response> {
    return this.#answer(withBearer(call), messagesDialect);
  }

  countTokens(call: RouteCall): Promise<Response> {
    return refusing(call, messagesDialect, async () => {
      const { request } = withBearer(call);
      const principal = await this.options.requireApiKey(request, call.requestId);
      if (principal instanceof Reply) return refusal(call, messagesDialect, responseOf(principal));
      const chat = chatBodyOfMessages(await readJson(request));
      const body = { input_tokens: promptTokens(chat, this.options) };
      return Response.json(body, { headers: headersOf(new Headers(), call, messagesDialect) });
    });
  }

  /** The parsed body, after the key: an unknown caller must not make us parse megabytes. */
  async #read({ request }: RouteCall): Promise<unknown> {
    const secret = bearerOf(request);
    if (!secret || !(await this.options.authenticate(secret))) {
      fail(
        "auth_required",
        "Invalid API key: send `Authorization: Bearer service-…`, as keys.create showed it",
      );
    }
    return readJson(request);
  }

  #answer(call: RouteCall, dialect: Dialect): Promise<Response> {
    return refusing(call, dialect, async () => {
      const body = await this.#read(call);
      const turn = dialect.begin(body, { requestId: call.requestId, nowMs: this.options.clock.now() });
      const response = await this.options.chat(call, turn.chat);
      if (!response.ok) return refusal(call, dialect, response);
      return this.#convert(call, { dialect, turn, response });
    });
  }

  async #convert(
    call: RouteCall,
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

const readJson = async (request: HttpRequest): Promise<unknown> =>
  parseJson(decodeUtf8(await request.body(BODY_BYTES_MAX)));

const headerSafe = (name: string): string => name.replace(/[^\w.-]/g, "").slice(0, 64);

/** Anthropic's clients may send the key in `x-api-key`; everything behind this knows only the bearer. */
function withBearer(call: RouteCall): RouteCall {
  const { request } = call;
  const key = request.header("x-api-key");
  if (!key || bearerOf(request)) return call;
  const headers = { authorization: `Bearer ${key}`, "x-api-key": null };
  return { ...call, query: call.query, request: new DerivedRequest(request, headers) };
}

/** Describe the body, not the answer: they are another answer's. */
const BODY_HEADERS = ["content-type", "content-length", "content-encoding", "transfer-encoding"] as const;

/** What the chat path said about the request, e.g. its id and limits, without what it said of its body. */
function headersOf(source: Headers, call: RouteCall, { requestIdHeader }: Dialect): Headers {
  const headers = new Headers(source);
  for (const name of BODY_HEADERS) headers.delete(name);
  if (!headers.has("x-request-id")) headers.set("x-request-id", call.requestId);
  if (requestIdHeader) headers.set(requestIdHeader, headers.get("x-request-id")!);
  return headers;
}

async function refusal(call: RouteCall, dialect: Dialect, response: Response): Promise<Response> {
  const failure = await readFailure(response);
  const headers = headersOf(response.headers, call, dialect);
  return Response.json(dialect.errorBody(failure, headers.get("x-request-id")!), {
    status: response.status,
    headers,
  });
}

/** Runs `task`; what it throws becomes a refusal in the API's own form. */
async function refusing(call: RouteCall, dialect: Dialect, task: () => Promise<Response>): Promise<Response> {
  try {
    return await task();
  } catch (error) {
    const failure = toServiceError(error);
    if (isOurs(failure)) {
      call.log.error("route failed", {
        request_id: call.requestId,
        path: call.request.path,
        error,
      });
    }
    return refusal(call, dialect, responseOf(toRestReply(failure, call.requestId)));
  }
}

/** What the client said about its own body is not true of the converted one. */
const CONVERTED_HEADERS = {
  "content-type": "application/json",
  "content-length": null,
  "content-encoding": null,
};

/** The chat path as a function: its route's handler, given a request with the converted body. */
export function throughRoute(route: RouteDefinition): ChatFunction {
  return async (call, body) => {
    const bytes = Buffer.from(JSON.stringify(body));
    const request = new DerivedRequest(call.request, CONVERTED_HEADERS, bytes);
    const result = await route.handler({ ...call, query: call.query, request });
    if (result instanceof Reply || result instanceof StreamedReply) return responseOf(result);
    return result instanceof Response ? result : Response.json(result);
  };
}
