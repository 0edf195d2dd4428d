import { ConnectionError, isAbort } from "./errors.ts";

export interface RpcRequest {
  jsonrpc: "2.0";
  id: number;
  method: string;
  params?: unknown;
}

export interface RpcReply {
  id: number;
  result?: unknown;
  error?: { code: number; message: string; data?: Record<string, unknown> };
}

export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

/** `fetch` whose network failures are ConnectionError; an abort stays what it is. */
export const connecting =
  (fetch: Fetch): Fetch =>
  async (url, init) => {
    try {
      return await fetch(url, init);
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ConnectionError("the service could not be reached", { cause: error });
    }
  };

export interface HttpCall {
  fetch: Fetch;
  url: string;
  token: string | null;
  signal?: AbortSignal;
  /** Also pushes the answer onto this notification session. */
  sessionId?: string;
}

/** One JSON-RPC request by POST. */
export async function rpcOverHttp(
  request: RpcRequest,
  { fetch, url, token, signal, sessionId }: HttpCall,
): Promise<RpcReply> {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(token !== null && { authorization: `Bearer ${token}` }),
      ...(sessionId !== undefined && { "x-session-id": sessionId }),
    },
    body: JSON.stringify(request),
    signal,
  });
  try {
    return (await response.json()) as RpcReply;
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ConnectionError(
      `the answer is not JSON-RPC (HTTP ${response.status}); is this the service's address?`,
    );
  }
}
