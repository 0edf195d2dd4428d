import type { Inference } from "./service.ts";

export type { Deadlines } from "./deadlines.ts";
export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export * as routes from "./routes.ts";
export { Inference, type InferenceOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    inference: Inference;
  }
}
