import type { Providers } from "./service.ts";

export * as methods from "./methods.ts";
export { Providers } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    providers: Providers;
  }
}
