export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export { Batches } from "./service.ts";
