export * as methods from "./methods.ts";
export { Audit, type AuditOptions } from "./service.ts";
