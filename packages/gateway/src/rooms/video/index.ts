import type { Video } from "./service.ts";

export * as methods from "./methods.ts";
export { type ClipFacts, Video, type VideoOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    video: Video;
  }
}
