import { bearerOf } from "@model-gateway/wire/http";
import type { RateLimiter } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, callerFrom, type Principal } from "../../kernel/context.ts";
import { authorize } from "../../kernel/dispatch.ts";
import { KeyRefusal } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import type { MethodAuth } from "../../kernel/method.ts";
import type { AnyRoute, RouteCall } from "../../kernel/route.ts";

const WINDOW_MS = 60_000;
const UNAUTHORIZED = "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n";
const TOO_MANY = "Rate limit exceeded. Try again later.";

interface GateOptions {
  authenticator: Authenticator;
  /** The holder of an API key; null when the key is unknown. */
  keys: { authenticate(secret: string): Principal | null | Promise<Principal | null> };
  limiter: RateLimiter;
  /** Of wrong tokens on routes for people and administrators. */
  tries: FailedTries;
  /** Of requests without a known API key. */
  keyTries: FailedTries;
  /** Requests a minute that each API key may make. */
  apiRateLimitRpm: number;
  /** Counts the request against the tier and the group of its key, or throws the refusal. */
  checkTierRate(principal: Principal): void | Promise<void>;
}

const unauthorized = () => new KeyRefusal("auth_required", UNAUTHORIZED);

type Keyed = Pick<RouteCall, "request" | "principal" | "record"> & { caller: Pick<CallSource, "ip"> };

/** Decides who may call a route, before its handler runs: notes on the call who it is, or throws the refusal. */
export class Gate {
  constructor(readonly options: GateOptions) {}

  async admit(route: AnyRoute, call: RouteCall): Promise<void> {
    if (route.auth === "public") return;
    if (route.auth !== "api_key") return this.#person(route, route.auth, call);
    const { request } = call;
    const secret = bearerOf(request) ?? (route.keyHeader ? request.header(route.keyHeader) : null);
    await this.#keyed(secret, route, call);
  }

  /** The holder of a key that a WebSocket was opened with: opening it counts as a request. */
  async keyHolder(secret: string | null, given: Omit<Keyed, "principal">): Promise<Principal> {
    const call: Keyed = { ...given, principal: null };
    await this.#keyed(secret, {}, call);
    return call.principal!;
  }

  /** What the key of such a socket may do now; throws the refusal of one that has expired or was revoked. */
  async stillHolder(secret: string | null): Promise<Principal> {
    const principal = secret ? await this.options.keys.authenticate(secret) : null;
    if (!principal) throw unauthorized();
    return principal;
  }

  async #keyed(secret: string | null, route: Pick<AnyRoute, "outsideTierRate">, call: Keyed): Promise<void> {
    const { keys, keyTries, limiter, apiRateLimitRpm, checkTierRate } = this.options;
    const principal = secret ? await keys.authenticate(secret) : null;
    if (!principal) throw keyTries.failed(call.caller.ip) ?? unauthorized();
    call.request.vouch();
    // Also of one that is refused for its pace.
    if (call.record) call.record.principal = principal;
    const waitMs = await limiter.hit(`api:${principal.keyId}`, apiRateLimitRpm, WINDOW_MS);
    call.principal = principal;
    if (waitMs > 0) throw new KeyRefusal("rate_limited", TOO_MANY);
    if (!route.outsideTierRate) await checkTierRate(principal);
  }

  async #person(route: AnyRoute, auth: MethodAuth, call: RouteCall): Promise<void> {
    const { authenticator, tries } = this.options;
    const identity = await authenticator.identify(bearerOf(call.request));
    const refusal = identity.isGuess ? tries.failed(call.caller.ip) : null;
    if (refusal) throw refusal;
    call.actor = authorize({ auth, name: `${route.method} ${route.path}` }, identity);
    call.caller = callerFrom(identity, call.caller);
    call.request.vouch();
  }
}
