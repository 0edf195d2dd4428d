import type { HttpRequest } from "@model-gateway/wire/http";
import type { z } from "zod";
import type { CallContext } from "./context.ts";

export type HttpMethod = "GET" | "POST" | "DELETE" | "PUT";
/** `api_key` routes authenticate in their own handler, because the key's limits are part of it. */
export type RouteAuth = "public" | "api_key" | "admin_token";

export interface RouteCall extends CallContext {
  request: HttpRequest;
  /** Path parameters, e.g. `id` of `/v1/video/generations/{id}`. */
  path: Record<string, string>;
  query: URLSearchParams;
}

export interface RouteDefinition {
  method: HttpMethod;
  /** Exact path, or with `{name}` segments. */
  path: string;
  summary: string;
  auth: RouteAuth;
  /** For the OpenAPI document; a handler that needs the parsed body calls `readJson`. */
  body?: z.ZodType;
  query?: z.ZodType;
  response?: z.ZodType;
  /** Media type of the answer when it is not JSON. */
  responseType?: string;
  bodyBytesMax?: number;
  /** Returns an answer (see reply.ts), or a value that is sent as JSON with status 200. */
  handler(call: RouteCall): unknown;
}

export const defineRoute = (definition: RouteDefinition): RouteDefinition => definition;
