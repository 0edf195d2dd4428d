import type { System } from "./service.ts";

export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export { type StatusFigures, System } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    system: System;
  }
}
