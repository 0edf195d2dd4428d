import type { Requests } from "./service.ts";

export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Requests, type RequestsOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    requests: Requests;
  }
}
