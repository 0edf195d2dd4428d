export * as methods from "./methods.ts";
export type { AlertSettings } from "./senders.ts";
export { Alerts } from "./service.ts";
