import { ServiceError } from "../../kernel/errors.ts";
import type { RouteTarget } from "./model-routes.ts";
import type { Route, RouteRequest, Router } from "./router.ts";

/** Targets of one call that are tried at most, each on one backend. */
const ATTEMPTS_MAX = 6;

export type PlanRequest = Omit<RouteRequest, "model" | "exclude">;

export class RoutePlan {
  readonly #taken: Route[] = [];

  constructor(
    readonly router: Router,
    readonly targets: readonly RouteTarget[],
    readonly beginWithinMs: number | null,
    readonly request: PlanRequest,
  ) {}

  /** The first target that can be taken now, or the first that is merely busy or not probed yet as soon as it serves. */
  async first(): Promise<Route> {
    const requests = this.targets.map((target) => this.#requestFor(target));
    return this.router.withTurns(requests, () => this.#first());
  }

  /** Takes one before it waits for anything, while this instance may test what it claimed. */
  async #first(): Promise<Route> {
    let refusal: unknown = null;
    let busy: RouteTarget | null = null;
    for (const target of this.targets) {
      const request = this.#requestFor(target);
      try {
        return this.#took(this.router.choose(request));
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        if (this.router.waitMsFor(request, error) > 0) busy ??= target;
        // A target that is known and away says more than one that nobody serves.
        if (refusal === null || error.kind === "all_unhealthy") refusal = error;
      }
    }
    if (busy === null) throw refusal;
    return this.#took(await this.router.acquire(this.#requestFor(busy)));
  }

  /** Another one after those that failed; null when there is none. */
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
