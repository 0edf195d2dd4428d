import type { AnyMethod, MethodDefinition } from "./method.ts";
import type { RouteDefinition } from "./route.ts";

/** What one room brings: its methods and routes, as the exported constants of its files. */
export interface RoomSurface {
  methods?: Record<string, unknown>;
  routes?: Record<string, unknown>;
}

const isMethod = (value: unknown): value is MethodDefinition =>
  typeof value === "object" && value !== null && "params" in value && "result" in value && "handler" in value;
const isRoute = (value: unknown): value is RouteDefinition =>
  typeof value === "object" && value !== null && "path" in value && "method" in value && "handler" in value;

/** All methods and routes of the process. */
export class Registry {
  readonly methods = new Map<string, AnyMethod>();
  readonly routes: RouteDefinition[] = [];

  constructor(surfaces: readonly RoomSurface[]) {
    for (const { methods = {}, routes = {} } of surfaces) {
      for (const method of Object.values(methods).filter(isMethod)) {
        if (this.methods.has(method.name)) throw new Error(`two methods are named ${method.name}`);
        this.methods.set(method.name, method as AnyMethod);
      }
      this.routes.push(...Object.values(routes).filter(isRoute));
    }
  }
}
