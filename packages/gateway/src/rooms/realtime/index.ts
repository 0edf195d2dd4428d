export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Realtime, type SocketListener, type SocketSession } from "./service.ts";
