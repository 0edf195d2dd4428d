import type { Audit } from "./service.ts";

export * as methods from "./methods.ts";
export { Audit, type AuditOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    audit: Audit;
  }
}
