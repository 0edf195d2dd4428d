import { Reply } from "../http/reply.ts";
import { webSocketHandshake } from "../websocket/handshake.ts";
import type { SocketHandlers } from "../websocket/server-socket.ts";
import type { IncomingRequest } from "./incoming-request.ts";
import { TEXT_TYPE } from "./reply-head.ts";

export interface SocketReplyOptions {
  /** The answer to a request that does not ask for a WebSocket. */
  hint?: string;
  /** The largest message of this socket's client; by default the server's limit. */
  messageBytesMax?: number;
  /** The subprotocol that is selected where the client offers it, in lower case; otherwise none is. */
  protocol?: string;
}

/** A reply that upgrades the connection to a WebSocket. */
export class SocketReply<Data = unknown> {
  constructor(
    readonly requestId: string,
    readonly data: Data,
    readonly handlers: SocketHandlers<Data>,
    readonly options: SocketReplyOptions = {},
  ) {}
}

const HINT = "This address is for WebSockets";

/** The 101 response, or the refusal. */
export function upgradeHead({ requestId, options }: SocketReply, request: IncomingRequest): string | Reply {
  const { isHttp10, hasBody } = request.head;
  // Frames follow the head; with a body in between it would be unclear where they begin.
  const shaken = isHttp10 || hasBody ? null : webSocketHandshake(request, options.protocol);
  if (shaken?.accepted) return shaken.head;
  const { status, headers, text } = shaken ?? {
    status: 426,
    headers: { upgrade: "websocket" },
    text: `${options.hint ?? HINT}\n`,
  };
  return new Reply({ status, contentType: TEXT_TYPE, requestId, headers }, text);
}
