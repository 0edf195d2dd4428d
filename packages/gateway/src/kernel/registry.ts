import type { AnyMethod, MethodDefinition, NotificationDefinition } from "./method.ts";
import { type AnyRoute, checkRoute } from "./route.ts";

/** A room's methods, routes and notifications: the exported constants of its files. */
export interface RoomSurface {
  methods?: Record<string, unknown>;
  routes?: Record<string, unknown>;
  notifications?: Record<string, unknown>;
}

const has = (value: unknown, ...names: string[]): boolean =>
  typeof value === "object" && value !== null && names.every((name) => name in value);
const isMethod = (value: unknown): value is MethodDefinition => has(value, "params", "result", "handler");
const isRoute = (value: unknown): value is AnyRoute => has(value, "path", "method", "handler");
const isNotification = (value: unknown): value is NotificationDefinition =>
  has(value, "name", "params") && !has(value, "handler");

export class Registry {
  readonly methods = new Map<string, AnyMethod>();
  readonly routes: AnyRoute[] = [];
  readonly notifications = new Map<string, NotificationDefinition>();

  constructor(surfaces: readonly RoomSurface[]) {
    for (const { methods = {}, routes = {}, notifications = {} } of surfaces) {
      for (const method of Object.values(methods).filter(isMethod)) {
        if (this.methods.has(method.name)) throw new Error(`two methods are named ${method.name}`);
        this.methods.set(method.name, method as AnyMethod);
      }
      for (const route of Object.values(routes).filter(isRoute)) {
        checkRoute(route);
        if (this.routes.some(({ method, path }) => method === route.method && path === route.path))
          throw new Error(`two routes are ${route.method} ${route.path}`);
        this.routes.push(route);
      }
      for (const notification of Object.values(notifications).filter(isNotification)) {
        const { name } = notification;
        if (this.notifications.has(name)) throw new Error(`two notifications are named ${name}`);
        this.notifications.set(name, notification);
      }
    }
    for (const { name, notifies = [] } of this.methods.values()) {
      const unknown = notifies.find((notification) => !this.notifications.has(notification));
      if (unknown) throw new Error(`method ${name} notifies ${unknown}, which no room defines`);
    }
  }
}
