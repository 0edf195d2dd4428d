import type { z } from "zod";
import type { DialectName, Overflow } from "../../../backends/contract.ts";
import { ERRORS, type ServiceError } from "../../../kernel/errors.ts";
import type { AnswerForm } from "../call/answer-shape.ts";
import type { NativeRequest, Payload } from "../request/payload.ts";
import type { ChatAnswer, Finish, TokenCounts } from "./chat-answer.ts";
import type { StoredTurn } from "./responses/request.ts";
import type { ToolCallEvent } from "./tool-calls.ts";

export interface Failure {
  status: number;
  message: string;
  type: string;
  code: string | null;
  /** Figures of a prompt that is too long for the model. */
  overflow?: Overflow;
}

export function failureOf({ kind, message, rest, data }: ServiceError): Failure {
  const { status, type, code } = { ...ERRORS[kind], ...(rest as Partial<Failure> | undefined) };
  return { status, message, type, code, overflow: data?.overflow as Overflow | undefined };
}

/** What happens in a streamed answer, in order and one thing at a time. */
export type ChatEvent =
  | { type: "start"; model: string; createdSeconds: number }
  | { type: "reasoning" | "text" | "refusal"; text: string }
  | ToolCallEvent
  | { type: "finish"; finish: Finish; usage: TokenCounts }
  | { type: "failure"; failure: Failure };

export interface Speaker {
  /** Media type of a streamed answer; absent: an event stream. */
  readonly contentType?: string;
  readonly keepAlive: string;
  /** The bytes of a streamed answer's next event; empty when the API has no such event. */
  write(event: ChatEvent): string;
  whole(answer: ChatAnswer): string;
}

/** Stored responses as one request of a user may use them. */
export interface CallerResponses {
  /** All turns that lead to a response, oldest first. Another user's looks like none at all. */
  history(responseId: string): Promise<StoredTurn[]>;
  /** What stores the turn with the JSON of its response, and says whether it could; null when it is too large already. */
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
  /** Runs `work`, which reads what is stored, only for a caller who can pay for what was sent. */
  whileHeld<T>(payload: Payload, work: () => Promise<T>): Promise<T>;
  /** The caller's stored responses; null when none are kept here. */
  responses(): CallerResponses | null;
}

/** A request that asks no model anything: this is the answer. */
export interface Answered {
  answer: object;
}

export interface ReadRequest {
  payload: Payload;
  form?: AnswerForm;
  /** Absent: the answer passes as the upstream's own bytes. */
  speaker?: Speaker;
  headers?: Readonly<Record<string, string>>;
}

/** A request that may pass as it is: to a backend that speaks the voice's own dialect. */
export interface NativeRead {
  native: Omit<NativeRequest, "chat" | "headersLike">;
  /** As a chat, for other backends, and for what only chats have. Throws the refusal of what no chat can carry. */
  translated(): ReadRequest;
}

/** A path that the voice serves, always by POST and with an API key. */
export interface VoiceRoute {
  path: string;
  summary: string;
  /** For the API reference: `read` checks what it needs. */
  body: z.ZodType;
  response: z.ZodType;
  events?: z.ZodType;
  /** Answers without asking a model; absent: the request is a chat. */
  answer?(body: Buffer): Promise<object>;
}

/** A chat API that clients can use: one folder here, and one line in index.ts. */
export interface Voice {
  readonly routes: Readonly<Record<string, VoiceRoute>>;
  /** Header that may carry the key where there is no bearer. */
  readonly keyHeader?: string;
  /** Header that the API's clients look for the request id in, besides `x-request-id`. */
  readonly requestIdHeader?: string;
  /** An upstream's refusal of the request is a 502, as the contract has it for its own two routes. */
  readonly wrapsUpstreamErrors?: boolean;
  /** Throws the refusal. A large body takes several turns. */
  read(body: Buffer, context: RequestContext): Promise<ReadRequest | NativeRead | Answered>;
  /** The body of a refusal; absent: the gateway's own form. */
  errorBody?(failure: Failure, requestId: string): object;
}

/** The part of our ids that other ids are made from. */
export const idToken = (requestId: string): string => requestId.replaceAll("-", "");

export const sseEvent = (name: string, data: unknown): string =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
