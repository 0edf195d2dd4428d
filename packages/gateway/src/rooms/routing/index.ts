export type { Background, Entry } from "./entry.ts";
export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { isFinal, reportTo } from "./outcome.ts";
export type { RoutePlan } from "./route-plan.ts";
export {
  BUSY_RETRY_SECONDS,
  type QueuePlace,
  type RoutableModel,
  Route,
  type RouteRequest,
} from "./router.ts";
export * as routes from "./routes.ts";
export { createSealer } from "./sealer.ts";
export { type BackendFactory, type Registration, Routing, type RoutingOptions } from "./service.ts";
