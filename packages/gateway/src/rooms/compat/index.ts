import type { Compat } from "./service.ts";

export type { ChatBody } from "./chat-body.ts";
export { convertRequest as chatBodyOfResponses } from "./responses/request.ts";
export * as routes from "./routes.ts";
export { type ChatFunction, Compat, type CompatOptions, throughRoute } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    compat: Compat;
  }
}
