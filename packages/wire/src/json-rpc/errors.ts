/** The peer answered with a JSON-RPC error object. */
export class RpcAnswerError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
    this.name = "RpcAnswerError";
  }
}

/**
 * The call got no answer.
 * - `connect`: the connection or its handshake failed; the call was never sent
 * - `busy`: too much is queued or in flight; the call was never sent
 * - `lost`: the connection ended after the call was sent
 * - `timeout`: no answer came in time
 */
export class RpcSocketError extends Error {
  constructor(
    readonly reason: "connect" | "busy" | "lost" | "timeout",
    message: string,
  ) {
    super(message);
    this.name = "RpcSocketError";
  }
}
