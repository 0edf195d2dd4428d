import type { Video } from "./service.ts";

export { createVideo } from "./create.ts";
export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export * as routes from "./routes.ts";
export type { Video } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    video: Video;
  }
}
