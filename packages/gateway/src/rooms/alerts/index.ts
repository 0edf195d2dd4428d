export * as methods from "./methods.ts";
export { type AlertSettings, Alerts } from "./service.ts";
