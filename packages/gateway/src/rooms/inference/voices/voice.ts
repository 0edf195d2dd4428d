import type { z } from "zod";
import { ERRORS, type ServiceError } from "../../../kernel/errors.ts";
import type { StoredMessage } from "../../conversations/index.ts";
import type { AnswerForm } from "../call/answer-form.ts";
import type { Payload } from "../request/payload.ts";
import type { KeptTurn } from "../responses/service.ts";
import type { ChatAnswer } from "./chat-answer.ts";
import type { ChatEvent } from "./chat-events.ts";

/** Why a request was refused or its answer broke, in the words that every API puts into its own form. */
export interface Failure {
  status: number;
  message: string;
  type: string;
  code: string | null;
}

export function failureOf({ kind, message }: ServiceError): Failure {
  const { status, type, code } = ERRORS[kind];
  return { status, message, type, code };
}

/** Says one answer in an API's own words. */
export interface Speaker {
  /** Media type of a streamed answer; absent: an event stream. */
  readonly contentType?: string;
  /** Keeps a silent connection open. */
  readonly keepAlive: string;
  /** What a streamed answer's next event is written as; empty when it is not told. */
  write(event: ChatEvent): string;
  /** The body of an answer that does not stream. */
  whole(answer: ChatAnswer): object;
}

export interface RequestContext {
  requestId: string;
  nowMs: number;
  now(): number;
  /** Refuses a model that nothing serves now. */
  requireModel(model: string): void;
  /** The messages that lead to a stored response of the caller, oldest first; rejects with the refusal. */
  historyOf(responseId: string): Promise<object[]>;
  /** Stores a turn under the request's id. */
  keep(turn: Pick<KeptTurn, "previousResponseId" | "asked" | "answer">): Promise<void>;
}

/** A request that asks no model anything: this is the answer. */
export interface Answered {
  answer: object;
}

/** A request that a voice has read. */
export interface ReadRequest {
  payload: Payload;
  /** What is asked for; absent: a chat. */
  form?: AnswerForm;
  /** Absent: the answer passes as the upstream's own bytes. */
  speaker?: Speaker;
  /** Stores the answer, before the reply ends. */
  keep?(answer: StoredMessage): Promise<void>;
  /** Headers of the reply besides those that every reply has. */
  headers?: Readonly<Record<string, string>>;
}

/** A path that the voice serves, always by POST and with an API key. */
export interface VoiceRoute {
  path: string;
  summary: string;
  /** For the documents: `read` checks what it needs. */
  body: z.ZodType;
  response: z.ZodType;
  /** Each event of a streamed answer. */
  events?: z.ZodType;
  /** Answers without asking a model; absent: the request is a chat. */
  answer?(body: Buffer): object;
}

/** An API in which models are talked to: one folder here, and one line in index.ts. */
export interface Voice {
  readonly routes: Readonly<Record<string, VoiceRoute>>;
  /** Header that may carry the key where there is no bearer. */
  readonly keyHeader?: string;
  /** Header that the API's clients look for the request id in, besides `x-request-id`. */
  readonly requestIdHeader?: string;
  /** Throws the refusal. */
  read(body: Buffer, context: RequestContext): ReadRequest | Answered | Promise<ReadRequest>;
  /** The body of a refusal; absent: the gateway's own form. */
  errorBody?(failure: Failure, requestId: string): object;
}

/** The part of our ids that other ids are made from. */
export const idToken = (requestId: string): string => requestId.replaceAll("-", "");

export const sseEvent = (name: string, data: unknown): string =>
  `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
