import { z } from "zod";
import type { Actor, ActorFor, CallContext } from "./context.ts";

/**
 * Who may call a method:
 * - `public`: anyone; `anonymous_socket`: only a WebSocket without a JWT
 * - `jwt`: a signed-in person; `admin`: one whose account is an administrator's
 * - `admin_token`: the bearer equals the configured admin token; `jwt_or_admin_token`: either
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
  /** For `admin` methods: what the refusal tells someone who is signed in without the right. */
  hint?: string;
  /** Asks something of a model: each call leaves a record, refused ones too. */
  recorded?: boolean;
  /** A role that the handler checks beyond `auth`; for the reference only, e.g. "group admin". */
  role?: string;
  /** Notifications that a call leads to, by name; for the reference only. */
  notifies?: readonly string[];
  /** False: leaves no entry in the audit log. Requests to models, whose record is the usage row, leave none. */
  audit?: false;
  handler(
    call: CallContext & {
      params: z.output<Params>;
      actor: ActorFor<Auth>;
      /** Filled with what was there before a change, under the parameters' names, for the audit log. */
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

/** A method as the registry holds it: the handler takes any params that the schema accepts. */
export interface AnyMethod extends Omit<MethodDefinition, "handler"> {
  handler(
    call: CallContext & { params: unknown; actor: Actor | null; before: Record<string, unknown> },
  ): unknown;
}

export const NoParams = z.object({});
/** `{"ok": true}` */
export const Ok = z
  .void()
  .transform(() => ({ ok: true }) as const)
  .pipe(z.object({ ok: z.literal(true) }));

/**
 * The one place where an RPC method exists; dispatch, documents and client types are derived from it. Without `params` it
 * takes none, and without `result` its handler returns nothing and the answer is `{"ok": true}`.
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

/** An id that comes in: in any case, and from here on in the one that the databases compare. */
export const GivenId = z.uuid().toLowerCase();
/** A whole number of any size, to be brought into a range: `z.int()` stops at the safe integers. */
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
  /** What it carries. Checked by the compiler where it is sent, not again at run time: one goes out for each token. */
  params: Params;
}

/** The one place where a notification exists; what is sent, documents and client types are derived from it. */
export const defineNotification = <const Name extends string, Params extends z.ZodType>(
  definition: NotificationDefinition<Name, Params>,
): NotificationDefinition<Name, Params> => definition;
