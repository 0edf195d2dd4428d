export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Agents } from "./service.ts";
