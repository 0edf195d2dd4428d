import { z } from "zod";
import type { Actor, ActorFor, CallContext } from "./context.ts";

/**
 * Who may call a method. `anonymous_socket`: only a WebSocket without a JWT; `jwt`: a signed-in person; `admin`: an
 * administrator; `admin_token`: the bearer equals the configured admin token.
 */
export type MethodAuth =
  | "public"
  | "anonymous_socket"
  | "jwt"
  | "admin"
  | "admin_token"
  | "jwt_or_admin_token";

interface MethodTerms<Name, Auth extends MethodAuth, Params extends z.ZodType, Result extends z.ZodType> {
  name: Name;
  summary: string;
  auth: Auth;
  /** For `admin` methods: added to the refusal of people who are not administrators. */
  hint?: string;
  /** Calls a model: each call leaves a record, also when refused. */
  recorded?: boolean;
  /** A role that the handler checks beyond `auth`; for the reference only, e.g. "group admin". */
  role?: string;
  /** Notifications that a call leads to, by name; for the reference only. */
  notifies?: readonly string[];
  /** Leaves no entry in the audit log. Requests to models have their usage row instead. */
  audit?: false;
  handler(
    call: CallContext & {
      params: z.output<Params>;
      actor: ActorFor<Auth>;
      /** The handler adds values from before the change, under the parameters' names, for the audit log. */
      before: Record<string, unknown>;
    },
  ): z.input<Result> | Promise<z.input<Result>>;
}

export interface MethodDefinition<
  Name extends string = string,
  Auth extends MethodAuth = MethodAuth,
  Params extends z.ZodType = z.ZodType,
  Result extends z.ZodType = z.ZodType,
> extends MethodTerms<Name, Auth, Params, Result> {
  params: Params;
  result: Result;
}

export interface AnyMethod extends Omit<MethodDefinition, "handler"> {
  handler(
    call: CallContext & { params: unknown; actor: Actor | null; before: Record<string, unknown> },
  ): unknown;
}

export const NoParams = z.object({});
export const Ok = z
  .void()
  .transform(() => ({ ok: true }) as const)
  .pipe(z.object({ ok: z.literal(true) }));

/**
 * Defines an RPC method; dispatch, documents and client types are derived from it. Without `params` it takes none; without
 * `result` the handler returns nothing and the answer is `{"ok": true}`.
 */
export function defineMethod<
  const Name extends string,
  Auth extends MethodAuth,
  Params extends z.ZodType = typeof NoParams,
  Result extends z.ZodType = typeof Ok,
>({
  params,
  result,
  ...terms
}: MethodTerms<Name, Auth, Params, Result> & { params?: Params; result?: Result }): MethodDefinition<
  Name,
  Auth,
  Params,
  Result
> {
  return {
    ...terms,
    params: params ?? (NoParams as z.ZodType as Params),
    result: result ?? (Ok as z.ZodType as Result),
  };
}

/** An id from a client, made lower case as in the databases. */
export const GivenId = z.uuid().toLowerCase();
/** A whole number of any size, to be clamped later: `z.int()` refuses more than the safe integers. */
export const wholeNumber = (problem?: string) =>
  z
    .number(problem)
    .refine(Number.isInteger, problem ?? "must be a whole number")
    .meta({ type: "integer" });
export const WholeNumber = wholeNumber();
export const Timestamp = z.iso.datetime().describe("RFC 3339 timestamp, UTC");

export interface NotificationDefinition<Name extends string = string, Params extends z.ZodType = z.ZodType> {
  name: Name;
  summary: string;
  /** Checked by the compiler only, not at run time: one is sent for each token. */
  params: Params;
}

export const defineNotification = <const Name extends string, Params extends z.ZodType>(
  definition: NotificationDefinition<Name, Params>,
): NotificationDefinition<Name, Params> => definition;
