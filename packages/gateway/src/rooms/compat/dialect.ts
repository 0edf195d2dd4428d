import type { ChatAnswer } from "./chat-answer.ts";
import type { ChatBody } from "./chat-body.ts";
import type { ChatFailure } from "./failure.ts";
import type { StreamWriter } from "./stream.ts";

export interface TurnContext {
  requestId: string;
  nowMs: number;
}

/** One request: what is asked of the chat path, and how its answer is told. */
export interface Turn {
  chat: ChatBody;
  /** Types of tools and items that were left out. */
  dropped: readonly string[];
  whole(answer: ChatAnswer): object;
  writer(): StreamWriter;
}

/** One API that is served through the chat path. */
export interface Dialect {
  begin(body: unknown, context: TurnContext): Turn;
  errorBody(failure: ChatFailure, requestId: string): object;
  /** Header that the API's clients look for the request id in, besides `x-request-id`. */
  requestIdHeader?: string;
}

/** The part of our ids that other ids are made from. */
export const idToken = (requestId: string): string => requestId.replaceAll("-", "");
