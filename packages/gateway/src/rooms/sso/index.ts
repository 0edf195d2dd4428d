export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export { Sso, type SsoSettings } from "./service.ts";
