import { bearerOf } from "@model-gateway/wire/http";
import type { RateLimiter } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, callerFrom, type Principal } from "../../kernel/context.ts";
import { authorize } from "../../kernel/dispatch.ts";
import { KeyRefusal } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import type { MethodAuth } from "../../kernel/method.ts";
import type { AnyRoute, RouteCall } from "../../kernel/route.ts";
import { whenKnown } from "../../kernel/when-known.ts";

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
type Rated = Pick<AnyRoute, "outsideTierRate">;

/**
 * Decides who may call a route, before its handler runs: notes on the call who it is, or throws the refusal. It waits
 * only where it has to, because it is around every request.
 */
export class Gate {
  constructor(readonly options: GateOptions) {}

  admit(route: AnyRoute, call: RouteCall): void | Promise<void> {
    if (route.auth === "public") return;
    return route.auth === "api_key" ? this.#keyHolder(route, call) : this.#person(route, route.auth, call);
  }

  #keyHolder(route: AnyRoute, call: RouteCall): void | Promise<void> {
    const { request } = call;
    const secret = bearerOf(request) ?? (route.keyHeader ? request.header(route.keyHeader) : null);
    const found = secret ? this.options.keys.authenticate(secret) : null;
    return found instanceof Promise ? this.#knownLater(found, route, call) : this.#known(found, route, call);
  }

  async #knownLater(found: Promise<Principal | null>, route: Rated, call: Keyed): Promise<void> {
    await this.#known(await found, route, call);
  }

  /** The holder of a key that a WebSocket was opened with: opening it counts as a request. */
  async keyHolder(
    secret: string | null,
    { request, record, caller }: Pick<Keyed, "request" | "record" | "caller">,
  ): Promise<Principal> {
    const call: Keyed = { request, principal: null, record, caller };
    await this.#known(secret ? await this.options.keys.authenticate(secret) : null, {}, call);
    return call.principal!;
  }

  /** What the key of such a socket may do now; throws the refusal of one that has expired or was revoked. */
  stillHolder(secret: string | null): Principal | Promise<Principal> {
    const found = secret ? this.options.keys.authenticate(secret) : null;
    return whenKnown(found, (principal) => {
      if (!principal) throw unauthorized();
      return principal;
    });
  }

  #known(principal: Principal | null, route: Rated, call: Keyed): void | Promise<void> {
    if (!principal) return this.#unknown(call);
    call.request.vouch();
    // Also of one that is refused for its pace.
    if (call.record) call.record.principal = principal;
    const { limiter, apiRateLimitRpm } = this.options;
    const hit = limiter.hit(`api:${principal.keyId}`, apiRateLimitRpm, WINDOW_MS);
    return typeof hit === "number"
      ? this.#paced(principal, hit, route, call)
      : hit.then((waitMs) => this.#paced(principal, waitMs, route, call));
  }

  #unknown({ caller: { ip } }: Keyed): never {
    throw this.options.keyTries.failed(ip) ?? unauthorized();
  }

  #paced(principal: Principal, waitMs: number, route: Rated, call: Keyed): void | Promise<void> {
    call.principal = principal;
    if (waitMs > 0) throw new KeyRefusal("rate_limited", TOO_MANY);
    if (!route.outsideTierRate) return this.options.checkTierRate(principal);
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
