import type { HttpRequest, Reply, StreamedReply } from "@model-gateway/wire/http";
import type { z } from "zod";
import type { ActorFor, CallContext, Principal } from "./context.ts";
import type { FieldErrors } from "./errors.ts";
import type { MethodAuth } from "./method.ts";

type HttpMethod = "GET" | "POST" | "DELETE" | "PUT";

/** As for methods. `api_key`: the bearer is an API key within its requests per minute. */
const ROUTE_AUTHS = [
  "public",
  "api_key",
  "jwt",
  "admin",
  "admin_token",
  "jwt_or_admin_token",
] as const satisfies (MethodAuth | "api_key")[];
export type RouteAuth = (typeof ROUTE_AUTHS)[number];

export const BODY_BYTES_MAX = 32 * 1024 * 1024;

/** As `bodyBytesMax`: a body with files, limited by a setting. */
export const UPLOAD = "upload";

/** A body that is passed on as bytes; its schema is for the documents only. */
export class Raw<Schema extends z.ZodType = z.ZodType> {
  constructor(
    readonly schema: Schema,
    readonly more: {
      type?: string;
      /** An event of the answer, if the request can ask for a stream. */
      events?: z.ZodType;
    } = {},
  ) {}
}

/** For a handler that takes the request's bytes, or returns its own reply, instead of a checked value. */
export const raw = <Schema extends z.ZodType>(schema: Schema, more?: Raw["more"]): Raw<Schema> =>
  new Raw(schema, more);

export class Answer<Value> {
  constructor(
    readonly status: number,
    readonly value: Value,
  ) {}
}

type Shape = z.ZodType | Raw;
type PathNames<Path> = Path extends `${string}{${infer Name}}${infer Rest}` ? Name | PathNames<Rest> : never;
type BodyOf<Body> = Body extends Raw ? Buffer : Body extends z.ZodType ? z.output<Body> : undefined;
type ResultOf<Response> = Response extends z.ZodType
  ? z.input<Response> | Answer<z.input<Response>>
  : Reply | StreamedReply | globalThis.Response;

export interface RefusedCall extends CallContext {
  request: HttpRequest;
  /** The API key's; null until it is known, and on other kinds of routes. */
  principal: Principal | null;
}

export interface RouteCall extends RefusedCall {
  path: Record<string, string>;
  actor: unknown;
  query: unknown;
  body: unknown;
}

interface TypedCall<Auth, Path, Query, Body> extends Omit<RouteCall, "principal" | "actor"> {
  principal: Auth extends "api_key" ? Principal : null;
  actor: Auth extends MethodAuth ? ActorFor<Auth> : null;
  path: Record<PathNames<Path>, string>;
  query: Query extends z.ZodType ? z.output<Query> : undefined;
  body: BodyOf<Body>;
}

interface RouteDefinition<
  Auth extends RouteAuth = RouteAuth,
  Path extends string = string,
  Query extends z.ZodType | undefined = z.ZodType | undefined,
  Body extends Shape | undefined = Shape | undefined,
  Response extends Shape = Shape,
> {
  method: HttpMethod;
  path: Path;
  summary: string;
  auth: Auth;
  /** A header and a query parameter that may carry the API key, for clients that do not send a bearer. */
  keyHeader?: string;
  keyQuery?: string;
  recorded?: boolean;
  /** On an `api_key` route: does not count towards the tier's requests per minute. */
  outsideTierRate?: true;
  /** As for methods. GET, `public` and `api_key` routes never leave an entry. */
  audit?: false;
  query?: Query;
  /** Read and, unless it is raw, parsed and checked before the handler runs. */
  body?: Body;
  bodyBytesMax?: number | typeof UPLOAD;
  invalid?: FieldErrors;
  response: Response;
  /** Fields that `response` does not list are dropped from the result. */
  handler(call: TypedCall<Auth, Path, Query, Body>): ResultOf<Response> | Promise<ResultOf<Response>>;
  /** Answers failed calls, also those refused before the handler, in the format of this API. */
  refuse?(error: unknown, call: RefusedCall): Reply | Promise<Reply>;
}

export interface AnyRoute extends Omit<RouteDefinition, "handler"> {
  handler(call: RouteCall): unknown;
}

export const isAudited = ({ method, auth, audit }: AnyRoute): boolean =>
  audit !== false && method !== "GET" && auth !== "public" && auth !== "api_key";

/** Refuses definitions that cannot be served; the types catch most of them. */
export function checkRoute(route: AnyRoute): void {
  const problem = problemOf(route);
  if (problem) throw new Error(`route ${route.method} ${route.path}: ${problem}`);
}

function problemOf({ method, auth, body, bodyBytesMax, response }: AnyRoute): string | null {
  if (!ROUTE_AUTHS.includes(auth)) return `\`auth\` must be one of ${ROUTE_AUTHS.join(", ")}`;
  if (!response) return "`response` is missing";
  if (body && method === "GET") return "a GET has no body";
  if (body && bodyBytesMax !== UPLOAD && !(Number.isInteger(bodyBytesMax) && bodyBytesMax! > 0))
    return "`bodyBytesMax` must say how large a body may be";
  return null;
}

export function defineRoute<
  Auth extends RouteAuth,
  const Path extends string,
  Response extends Shape,
  Query extends z.ZodType | undefined = undefined,
  Body extends Shape | undefined = undefined,
>(
  definition: RouteDefinition<Auth, Path, Query, Body, Response> &
    (Body extends Shape ? { bodyBytesMax: number | typeof UPLOAD } : { bodyBytesMax?: never }),
): AnyRoute {
  const route = definition as unknown as AnyRoute;
  checkRoute(route);
  return route;
}
