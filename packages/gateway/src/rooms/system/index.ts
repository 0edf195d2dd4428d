export type { LocalServer } from "../../backends/contract.ts";
export { Housekeeping } from "./housekeeping.ts";
export { type FoundServer, findLocalServers, LocalServers } from "./local-servers.ts";
export * as methods from "./methods.ts";
export * as routes from "./routes.ts";
export { System } from "./service.ts";
export { Settings } from "./settings.ts";
