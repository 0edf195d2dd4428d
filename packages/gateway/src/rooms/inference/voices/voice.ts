import type { z } from "zod";
import type { DialectName, Overflow } from "../../../backends/contract.ts";
import { ERRORS, type ServiceError } from "../../../kernel/errors.ts";
import type { AnswerForm } from "../call/answer.ts";
import type { NativeRequest, Payload } from "../request/payload.ts";
import type { ChatAnswer, Finish, TokenCounts } from "./chat-answer.ts";
import { Given } from "./given.ts";
import type { StoredTurn } from "./responses/request.ts";
import type { ToolCallEvent } from "./tool-calls.ts";

export interface Failure {
  status: number;
  message: string;
  type: string;
  code: string | null;
  /** Set if the prompt is too long for the model. */
  overflow?: Overflow;
}

export function failureOf({ kind, message, rest, data }: ServiceError): Failure {
  const { status, type, code } = { ...ERRORS[kind], ...(rest as Partial<Failure> | undefined) };
  return { status, message, type, code, overflow: data?.overflow as Overflow | undefined };
}

/** The events of a streamed answer. */
export type ChatEvent =
  | { type: "start"; model: string; createdSeconds: number }
  | { type: "reasoning" | "text" | "refusal"; text: string }
  | ToolCallEvent
  | { type: "finish"; finish: Finish; usage: TokenCounts }
  | { type: "failure"; failure: Failure };

export interface Speaker {
  /** Media type of a streamed answer; default: an event stream. */
  readonly contentType?: string;
  readonly keepAlive: string;
  /** Writes one event; empty if the API has no such event. */
  write(event: ChatEvent): string;
  whole(answer: ChatAnswer): string;
}

/** The stored responses that one request may use. */
export interface CallerResponses {
  /** All turns that lead to a response, oldest first. Another user's response is reported as missing. */
  history(responseId: string): Promise<StoredTurn[]>;
  /** A function that stores the turn with its response's JSON and tells whether it could; null if it is too large. */
  turn(asked: {
    previousResponseId: string | null;
    input: unknown;
  }): ((responseJson: string) => boolean) | null;
}

export interface RequestContext {
  requestId: string;
  now(): number;
  isSpoken(dialect: DialectName): boolean;
  requireModel(model: string): void;
  /** Runs `work`, which reads stored data, only if the caller can pay for what was sent. */
  whileHeld<T>(payload: Payload, work: () => Promise<T>): Promise<T>;
  /** The caller's stored responses; null if storing is off. */
  responses(): CallerResponses | null;
}

export interface ReadRequest {
  payload: Payload;
  form?: AnswerForm;
  /** Absent: the upstream's own bytes pass. */
  speaker?: Speaker;
  headers?: Readonly<Record<string, string>>;
}

/** A request that passes verbatim to a backend that speaks the voice's dialect. */
export interface NativeRead {
  native: Omit<NativeRequest, "chat" | "headersLike">;
  /** The request as a chat, for other backends. Throws if a chat cannot express it. */
  translated(): ReadRequest;
}

/** A path of the voice: always POST, with an API key. */
export interface VoiceRoute {
  path: string;
  summary: string;
  /** For the API reference only: `read` does its own checks. */
  body: z.ZodType;
  response: z.ZodType;
  events?: z.ZodType;
  /** Answers without a model; absent: the request is a chat. */
  answer?(body: Buffer): Promise<object>;
}

/** A chat API for clients: one folder here and one line in index.ts. */
export interface Voice {
  readonly routes: Readonly<Record<string, VoiceRoute>>;
  /** Header that may carry the key instead of a bearer. */
  readonly keyHeader?: string;
  /** Header in which the API's clients expect the request id, besides `x-request-id`. */
  readonly requestIdHeader?: string;
  /** An upstream's refusal becomes a 502, as the contract requires for its own two routes. */
  readonly wrapsUpstreamErrors?: boolean;
  /** Throws if the request is refused; `answer` needs no model. A large body takes several turns of the event loop. */
  read(body: Buffer, context: RequestContext): Promise<ReadRequest | NativeRead | { answer: object }>;
  /** The body of a refusal; default: the gateway's own form. */
  errorBody?(failure: Failure, requestId: string): object;
}

/** A request in this dialect; `limits` are the fields for an answer of at most so many tokens. */
export const nativeOf = (
  dialect: DialectName,
  payload: Payload,
  limits: (tokens: number) => Record<string, number>,
): NativeRead["native"] => ({
  dialect,
  payload,
  model: Given.request({ model: payload.value("model") }).model,
  stream: payload.value("stream") === true,
  spend: payload.spendFields(),
  limited: (tokens) => new Map(Object.entries(limits(tokens)).map(([name, value]) => [name, String(value)])),
});

/** Proxies reject long headers. */
const DROPPED_NAMED_MAX = 32;

/** Headers that name what could not be passed on. */
export function droppedHeaders(dropped: readonly string[]): ReadRequest["headers"] {
  if (dropped.length === 0) return undefined;
  const names = dropped.slice(0, DROPPED_NAMED_MAX).map((name) => name.replace(/[^\w.-]/g, "").slice(0, 64));
  if (dropped.length > names.length) names.push(`${dropped.length - names.length} more`);
  return { "x-service-dropped": names.join(", ") };
}

/** A request id without dashes, from which other APIs' ids are made. */
export const idToken = (requestId: string): string => requestId.replaceAll("-", "");

export const sseEvent = (name: string, data: unknown): string =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
