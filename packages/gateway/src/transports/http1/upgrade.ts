import { Reply } from "../../kernel/reply.ts";
import type { IncomingRequest } from "./incoming.ts";
import type { SocketHandlers } from "./websocket.ts";
import { webSocketHandshake } from "./websocket-handshake.ts";
import { TEXT_TYPE } from "./wire.ts";

/** An answer that turns the connection into a WebSocket. */
export class SocketReply<Data = unknown> {
  constructor(
    readonly requestId: string,
    readonly data: Data,
    readonly handlers: SocketHandlers<Data>,
    /** What a request that asks for no WebSocket is told. */
    readonly hint = "This address is for WebSockets",
  ) {}
}

/** The head that makes it a WebSocket, or the refusal. */
export function upgradeHead({ requestId, hint }: SocketReply, request: IncomingRequest): string | Reply {
  const { isHttp10, hasBody } = request.head;
  // What comes after the head is frames; with a body before them it would not be clear where they begin.
  const shaken = isHttp10 || hasBody ? null : webSocketHandshake(request);
  if (shaken?.accepted) return shaken.head;
  const { status, headers, text } = shaken ?? {
    status: 426,
    headers: { upgrade: "websocket" },
    text: `${hint}\n`,
  };
  return new Reply({ status, contentType: TEXT_TYPE, requestId, headers }, text);
}
