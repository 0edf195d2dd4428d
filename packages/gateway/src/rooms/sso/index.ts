import type { Sso } from "./service.ts";

export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export { Sso, type SsoSettings } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    sso: Sso;
  }
}
