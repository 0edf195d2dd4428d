import { nearness, type SessionOf } from "../../kernel/affinity.ts";
import { isoTime } from "../../kernel/clock.ts";
import { fail, ServiceError } from "../../kernel/errors.ts";
import { upsertRow } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import type { Route, RouteRequest } from "./route.ts";
import type { Router } from "./router.ts";

const CHANGED = "model-routes-changed";
const ROUTES_MAX = 1_000;
export const TARGETS_MAX = 16;
/** How many targets one call tries at most, each on one backend. */
const ATTEMPTS_MAX = 6;

export interface RouteTarget {
  model: string;
  /** Only this backend, or backends of this kind; null: any. */
  backend: string | null;
  /** Lower ones are tried first; targets of the same order share the calls by weight. */
  order: number;
  weight: number;
}

export interface ModelRoute {
  name: string;
  targets: readonly RouteTarget[];
  /** A target that has not begun to answer after this time is replaced by the next; null: no limit. */
  beginWithinMs: number | null;
}

interface Weighted {
  target: RouteTarget;
  /** Smooth weighted round robin: every choice adds the weight; the chosen target pays the sum of all weights. */
  credit: number;
}

class LiveRoute {
  readonly #groups: readonly (readonly Weighted[])[];

  constructor(readonly route: ModelRoute) {
    const sorted = route.targets.toSorted((a, b) => a.order - b.order);
    const weighted = sorted.map((target) => ({ target, credit: 0 }));
    this.#groups = [...Map.groupBy(weighted, ({ target }) => target.order).values()];
  }

  /** The order in which one call tries the targets; it is always the same for one session. */
  sequence(sessionOf?: SessionOf): RouteTarget[] {
    return this.#groups.flatMap((group) => {
      if (group.length === 1) return group[0]!.target;
      const session = sessionOf?.() ?? null;
      if (session !== null) {
        const near = ({ target: { model, backend, weight } }: Weighted) =>
          nearness(session, `${model} ${backend}`, weight);
        return group.toSorted((a, b) => near(b) - near(a)).map(({ target }) => target);
      }
      let sum = 0;
      for (const each of group) {
        each.credit += each.target.weight;
        sum += each.target.weight;
      }
      const byCredit = group.toSorted((a, b) => b.credit - a.credit);
      byCredit[0]!.credit -= sum;
      return byCredit.map(({ target }) => target);
    });
  }
}

/** Names that several targets serve: in the database, and the same on all instances. */
export class ModelRoutes {
  #routes = new Map<string, LiveRoute>();
  #reading: Promise<void> = Promise.resolve();

  constructor(readonly options: Needs<"db" | "bus" | "clock" | "log">) {
    options.bus.subscribe(CHANGED, () => this.reload());
    options.bus.onGap(() => void this.reload());
  }

  reload(): Promise<void> {
    this.#reading = this.#reading
      .then(() => this.#read())
      .catch((error) => this.options.log.error("the model routes could not be read", { error }));
    return this.#reading;
  }

  async #read(): Promise<void> {
    const rows = await this.options.db.all<{ name: string; targets: string; begin_within_ms: number | null }>(
      "SELECT name, targets, begin_within_ms FROM model_routes ORDER BY name",
    );
    const routes = new Map<string, LiveRoute>();
    for (const { name, targets, begin_within_ms } of rows) {
      const route = { name, targets: JSON.parse(targets) as RouteTarget[], beginWithinMs: begin_within_ms };
      const known = this.#routes.get(name);
      routes.set(name, known && Bun.deepEquals(known.route, route) ? known : new LiveRoute(route));
    }
    this.#routes = routes;
  }

  /** What one call tries; null: no route has this name. */
  plan(name: string, session?: SessionOf): { targets: RouteTarget[]; beginWithinMs: number | null } | null {
    const live = this.#routes.get(name);
    return live ? { targets: live.sequence(session), beginWithinMs: live.route.beginWithinMs } : null;
  }

  targetsOf(name: string): readonly RouteTarget[] | null {
    return this.#routes.get(name)?.route.targets ?? null;
  }

  has(name: string): boolean {
    return this.#routes.has(name);
  }

  list(): ModelRoute[] {
    return [...this.#routes.values()].map(({ route }) => route);
  }

  async set({ name, targets, beginWithinMs }: ModelRoute): Promise<void> {
    const { db, clock, bus } = this.options;
    if (this.#routes.size >= ROUTES_MAX && !this.#routes.has(name))
      fail("app_error", `There are ${ROUTES_MAX} model routes already, the most that are kept; delete some`);
    const row = { name, targets: JSON.stringify(targets), begin_within_ms: beginWithinMs };
    await upsertRow(db, "model_routes", { ...row, updated_at: isoTime(clock.now()) }, { key: "name" });
    await this.reload();
    bus.publish(CHANGED, name);
  }

  async remove(name: string): Promise<void> {
    const removed = await this.options.db.run("DELETE FROM model_routes WHERE name = $1", [name]);
    await this.reload();
    if (removed === 0) fail("not_found", `There is no model route named ${name}; see routes.list`);
    this.options.bus.publish(CHANGED, name);
  }
}

export type PlanRequest = Omit<RouteRequest, "model" | "exclude">;

export class RoutePlan {
  readonly #taken: Route[] = [];

  constructor(
    readonly router: Router,
    readonly targets: readonly RouteTarget[],
    readonly beginWithinMs: number | null,
    readonly request: PlanRequest,
  ) {}

  /** The first target that can serve now; else waits for the first that is only busy or not probed yet. */
  async first(): Promise<Route> {
    const requests = this.targets.map((target) => this.#requestFor(target));
    return this.router.withTurns(requests, () => this.#first(requests));
  }

  /** Chooses before anything is awaited: the right to send test calls lasts only until then. */
  async #first(requests: readonly RouteRequest[]): Promise<Route> {
    let refusal: unknown = null;
    let busy: RouteRequest | null = null;
    for (const request of requests) {
      try {
        return this.#took(this.router.choose(request));
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        if (this.router.waitMsFor(request, error) > 0) busy ??= request;
        // That a known target is unhealthy says more than that nobody serves another.
        if (refusal === null || error.kind === "all_unhealthy") refusal = error;
      }
    }
    if (busy === null) throw refusal;
    return this.#took(await this.router.acquire(busy));
  }

  /** Another route after those that failed; null: none is left. */
  next(): Route | null {
    if (this.#taken.length >= ATTEMPTS_MAX) return null;
    for (const target of this.targets) {
      try {
        return this.#took(this.router.choose(this.#requestFor(target)));
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
      }
    }
    return null;
  }

  get hasNext(): boolean {
    return (
      this.#taken.length < ATTEMPTS_MAX &&
      this.targets.some((target) => this.router.canChoose(this.#requestFor(target)))
    );
  }

  #took(route: Route): Route {
    this.#taken.push(route);
    return route;
  }

  #requestFor({ model, backend }: RouteTarget): RouteRequest {
    return { ...this.request, model, backend, isTarget: true, exclude: this.#taken };
  }
}
