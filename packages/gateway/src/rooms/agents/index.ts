import type { Agents } from "./service.ts";

export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { Agents, type AgentsOptions } from "./service.ts";
export type { BackendRegistry } from "./serving.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    agents: Agents;
  }
}
