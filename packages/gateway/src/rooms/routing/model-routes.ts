import { nearness, type SessionOf } from "../../kernel/affinity.ts";
import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { upsertRow } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";

const CHANGED = "model-routes-changed";
const ROUTES_MAX = 1_000;
export const TARGETS_MAX = 16;

export interface RouteTarget {
  model: string;
  /** Only this backend, or backends of this kind; null: any. */
  backend: string | null;
  /** Lower ones are tried first; those of the same order share the calls by weight. */
  order: number;
  weight: number;
}

export interface ModelRoute {
  name: string;
  targets: readonly RouteTarget[];
  /** A target that has not begun to answer by then gives way to the next; null: no such limit. */
  beginWithinMs: number | null;
}

interface Weighted {
  target: RouteTarget;
  /** Smooth weighted round robin: grows by the weight with every choice, and pays the sum when it is chosen. */
  credit: number;
}

class LiveRoute {
  readonly #groups: readonly (readonly Weighted[])[];

  constructor(readonly route: ModelRoute) {
    const orders = [...new Set(route.targets.map(({ order }) => order))].sort((a, b) => a - b);
    this.#groups = orders.map((order) =>
      route.targets.flatMap((target) => (target.order === order ? { target, credit: 0 } : [])),
    );
  }

  /** The targets in the order in which one call tries them: a session's always in the same. */
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

/** Names with several targets: persisted, and the same on all instances. */
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

  /** What one call to this name tries; null when it is not a route's. */
  plan(name: string, session?: SessionOf): { targets: RouteTarget[]; beginWithinMs: number | null } | null {
    const live = this.#routes.get(name);
    return live ? { targets: live.sequence(session), beginWithinMs: live.route.beginWithinMs } : null;
  }

  /** All that a call to this name may lead to; null when it is not a route's. */
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
