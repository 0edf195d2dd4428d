import {
  callRoute,
  type RequestOptions,
  type RestSource,
  type RouteAnswer,
  type RouteBody,
  type RouteName,
  type RouteSending,
} from "./rest.ts";

export type BackendRegistration = RouteBody<"POST /api/admin/backends">;
export type BackendList = RouteAnswer<"GET /api/admin/backends">;
export type BackendHealth = BackendList["backends"]["health"][number];
export type Alias = RouteBody<"POST /api/admin/aliases">;
export type UsageQuery = RouteBody<"POST /api/admin/usage/query">;
export type UsageAnswer = RouteAnswer<"POST /api/admin/usage/query">;
export type UsageSums = UsageAnswer["totals"];
export type UsageQueryRecord = NonNullable<UsageAnswer["records"]>[number];

export interface AdminSource extends Pick<RestSource, "fetch" | "baseUrl"> {
  adminToken(): string | null;
}

/** The `/api/admin` surface, with the admin token. */
export function createAdmin(source: AdminSource) {
  const call = <R extends RouteName>(route: R, sending: Omit<RouteSending<R>, "bearer">) =>
    callRoute(source, route, { ...sending, bearer: source.adminToken() });
  return {
    backends: (options: RequestOptions = {}) => call("GET /api/admin/backends", options),
    registerBackend: (backend: BackendRegistration, options: RequestOptions = {}) =>
      call("POST /api/admin/backends", { ...options, body: backend }),
    removeBackend: (index: number, options: RequestOptions = {}) =>
      call("DELETE /api/admin/backends", { ...options, body: { index } }),
    aliases: (options: RequestOptions = {}) => call("GET /api/admin/aliases", options),
    setAlias: (alias: Alias, options: RequestOptions = {}) =>
      call("POST /api/admin/aliases", { ...options, body: alias }),
    removeAlias: (alias: string, options: RequestOptions = {}) =>
      call("DELETE /api/admin/aliases", { ...options, body: { alias } }),
    queryUsage: (query: UsageQuery, options: RequestOptions = {}) =>
      call("POST /api/admin/usage/query", { ...options, body: query }),
  };
}

export type Admin = ReturnType<typeof createAdmin>;
