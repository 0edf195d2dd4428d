export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export * as routes from "./routes.ts";
export { Video } from "./service.ts";
