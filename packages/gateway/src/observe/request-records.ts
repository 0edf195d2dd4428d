/** What `outcome` says when the client ended the call. */
export const CLIENT_LEFT_OUTCOME = "client_left";

/** A request that did not get its answer, as an operator wants to see it. */
export interface RequestFailure {
  requestId: string;
  /** HTTP status of a refusal; null when an upstream failed. */
  status: number | null;
  /** Code of the refusal, or what happened to the call in one word. */
  code: string;
  model: string | null;
  backend: string | null;
  message: string;
}
