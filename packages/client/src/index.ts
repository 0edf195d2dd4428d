export { abilitiesOf } from "./abilities.ts";
export type * from "./admin.ts";
export * from "./cli-sign-in.ts";
export * from "./client.ts";
export { ConnectionError, isAbort, RestError, RPC_CODE, RpcError } from "./errors.ts";
export type { ChatStream, EventsOptions, ModelsProgress, Notification } from "./events.ts";
export { METHOD_AUTH, type Methods } from "./methods.gen.ts";
export type { Notifications } from "./notifications.gen.ts";
export { oneTimeLink } from "./one-time-link.ts";
export {
  type ListedPrice,
  type PriceChange,
  type PriceList,
  priceChanges,
  readPriceList,
} from "./price-lists.ts";
export type * from "./rest.ts";
export type { Routes } from "./routes.gen.ts";
export type { Fetch } from "./rpc.ts";
export type { SocketConstructor, SocketLike } from "./rpc-socket.ts";
export {
  memoryTokens,
  type Session,
  type SessionUser,
  type TokenStore,
  webStorageTokens,
} from "./session.ts";
