import { bearerOf } from "@model-gateway/wire/http";
import type { Counter, RateLimit } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, callerFrom, type Principal } from "../../kernel/context.ts";
import { authorize } from "../../kernel/dispatch.ts";
import { KeyRefusal } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import type { MethodAuth } from "../../kernel/method.ts";
import type { AnyRoute, RouteCall } from "../../kernel/route.ts";

const WINDOW_MS = 60_000;
const UNAUTHORIZED = "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n";
const TOO_MANY = "Rate limit exceeded. Try again later.";

interface Rate extends RateLimit {
  refuse(max: number, waitMs: number): never;
}

interface GateOptions {
  authenticator: Authenticator;
  /** The holder of an API key; null when the key is unknown. */
  keys: { authenticate(secret: string): Promise<Principal | null> };
  counter: Counter;
  /** Of wrong tokens on routes for people and administrators. */
  tries: FailedTries;
  /** Of requests without a known API key. */
  keyTries: FailedTries;
  /** Requests a minute that each API key may make. */
  apiRateLimitRpm: number;
  /** What else limits the pace of a key: itself, its tier and its group. */
  tierRates(principal: Principal): readonly Rate[];
}

const tooMany = (): never => {
  throw new KeyRefusal("rate_limited", TOO_MANY);
};
const unauthorized = () => new KeyRefusal("auth_required", UNAUTHORIZED);

type Keyed = Pick<RouteCall, "request" | "principal" | "record"> & { caller: Pick<CallSource, "ip"> };

/** Decides who may call a route, before its handler runs: notes on the call who it is, or throws the refusal. */
export class Gate {
  constructor(readonly options: GateOptions) {}

  async admit(route: AnyRoute, call: RouteCall): Promise<void> {
    if (route.auth === "public") return;
    if (route.auth !== "api_key") return this.#person(route, route.auth, call);
    const { request } = call;
    const { keyHeader, keyQuery } = route;
    const secret =
      bearerOf(request) ||
      (keyHeader ? request.header(keyHeader) : null) ||
      (keyQuery ? new URLSearchParams(request.search).get(keyQuery) : null);
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
    const { keys, keyTries, counter, apiRateLimitRpm, tierRates } = this.options;
    const principal = secret ? await keys.authenticate(secret) : null;
    if (!principal) throw keyTries.failed(call.caller.ip) ?? unauthorized();
    call.request.vouch();
    // Also of one that is refused for its pace.
    if (call.record) call.record.principal = principal;
    const ofKey = {
      key: `api:${principal.keyId}`,
      max: apiRateLimitRpm,
      windowMs: WINDOW_MS,
      refuse: tooMany,
    };
    const rates: Rate[] = route.outsideTierRate ? [ofKey] : [ofKey, ...tierRates(principal)];
    const exceeded = await counter.hit(rates);
    call.principal = principal;
    if (!exceeded) return;
    const { refuse, max } = rates[exceeded.at]!;
    refuse(max, exceeded.waitMs);
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
