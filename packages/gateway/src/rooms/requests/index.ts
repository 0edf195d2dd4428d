export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Requests, type RequestsOptions } from "./service.ts";
