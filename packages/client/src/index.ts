export type * from "@model-gateway/protocol/notifications.ts";
export type * from "./admin.ts";
export * from "./client.ts";
export { ConnectionError, isAbort, RestError, RPC_CODE, RpcError } from "./errors.ts";
export type { EventsOptions } from "./events.ts";
export { METHOD_AUTH, type Methods } from "./methods.gen.ts";
export type * from "./rest.ts";
export type { Fetch } from "./rpc.ts";
export type { SocketConstructor, SocketLike } from "./rpc-socket.ts";
export {
  memoryTokens,
  type Session,
  type SessionUser,
  type TokenStore,
  webStorageTokens,
} from "./session.ts";
