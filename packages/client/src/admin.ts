import { type RequestOptions, type RestSource, sendRest } from "./rest.ts";

export type HealthState = "Healthy" | "Degraded" | "Unhealthy";

export interface BackendRegistration {
  type?: string;
  url?: string;
  api_key?: string;
  name?: string;
  models?: string[];
  capabilities?: string[];
}

export interface BackendCircuit {
  state: "closed" | "open" | "half_open";
  /** When an open circuit lets one test call through. */
  retry_at?: string | null;
  consecutive_failures?: number;
  cause?: string | null;
}

export interface BackendHealth {
  /** `backend_<index>:<kind>`. */
  label: string;
  state: HealthState;
  name?: string;
  url?: string;
  circuit?: BackendCircuit | string;
  last_error?: string | null;
  /** Usage that the model cannot have had, as the backend reported it. */
  implausible_usage?: { count: number; problem: string; request_id: string; at: string } | null;
  [field: string]: unknown;
}

export interface BackendList {
  backends: { count: number; health: BackendHealth[] };
  models: string[];
}

export interface Alias {
  alias: string;
  target: string;
}

export interface UsageQuery {
  ref_ids?: string[];
  since?: string;
  until?: string;
  group_by?: "model" | "backend" | "ref" | "day";
  limit?: number;
  offset?: number;
  include_records?: boolean;
}

export interface UsageSums {
  requests?: number;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost_usd: number;
}

export interface UsageQueryRecord {
  id: string;
  ref_id: string | null;
  api_key_id: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  created_at: string;
}

export interface UsageAnswer {
  totals: UsageSums;
  groups?: (UsageSums & { key: string | null })[];
  records?: UsageQueryRecord[];
  records_total?: number;
  limit?: number;
  offset?: number;
}

export interface AdminSource extends Pick<RestSource, "fetch" | "baseUrl"> {
  adminToken(): string | null;
}

/** The `/api/admin` surface, with the admin token. */
export function createAdmin(source: AdminSource) {
  const json = async <T>(
    path: string,
    options: RequestOptions & { method?: string; body?: unknown } = {},
  ): Promise<T> => {
    const response = await sendRest(source, `/api/admin${path}`, { ...options, bearer: source.adminToken() });
    return (await response.json()) as T;
  };
  return {
    backends: (options: RequestOptions = {}) => json<BackendList>("/backends", options),
    registerBackend: (backend: BackendRegistration, options: RequestOptions = {}) =>
      json<Record<string, unknown>>("/backends", { ...options, body: backend }),
    removeBackend: (index: number, options: RequestOptions = {}) =>
      json<{ status: string }>("/backends", { ...options, method: "DELETE", body: { index } }),
    aliases: async (options: RequestOptions = {}): Promise<Alias[]> => {
      const answer = await json<Alias[] | { aliases: Alias[] }>("/aliases", options);
      return Array.isArray(answer) ? answer : answer.aliases;
    },
    setAlias: (alias: Alias, options: RequestOptions = {}) =>
      json<{ status: string }>("/aliases", { ...options, body: alias }),
    removeAlias: (alias: string, options: RequestOptions = {}) =>
      json<{ status: string }>("/aliases", { ...options, method: "DELETE", body: { alias } }),
    queryUsage: (query: UsageQuery, options: RequestOptions = {}) =>
      json<UsageAnswer>("/usage/query", { ...options, body: query }),
  };
}

export type Admin = ReturnType<typeof createAdmin>;
