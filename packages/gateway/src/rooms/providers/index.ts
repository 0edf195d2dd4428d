export * as methods from "./methods.ts";
export { Providers } from "./service.ts";
