import type { Realtime } from "./service.ts";

export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Realtime, type SocketListener, type SocketSession } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    realtime: Realtime;
  }
}
