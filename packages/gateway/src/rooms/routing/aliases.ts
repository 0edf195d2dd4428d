import type { Bus } from "../../bus/contract.ts";
import { fail } from "../../kernel/errors.ts";

const CHANGED = "alias-changed";
const WANTED = "aliases-wanted";
const ALIASES_MAX = 10_000;

/** Google's clients name models as resources. */
const RESOURCE = "models/";
export const plainId = (id: string): string => (id.startsWith(RESOURCE) ? id.slice(RESOURCE.length) : id);

interface Change {
  alias: string;
  target: string | null;
}

/** Other names of models: in memory only, shared by the instances that share a bus. */
export class Aliases {
  readonly #targets = new Map<string, string>();

  constructor(
    readonly bus: Bus,
    /** Whether a backend or a route has a model of this very name. */
    readonly isKnown: (model: string) => boolean = () => false,
  ) {
    bus.subscribe(CHANGED, (message) => {
      const { alias, target } = JSON.parse(message) as Change;
      if (target === null) this.#targets.delete(alias);
      else if (this.#targets.has(alias) || this.#targets.size < ALIASES_MAX) this.#targets.set(alias, target);
    });
    // An instance that has just started asks the others, which are the only ones to know.
    const answering = bus.subscribe(WANTED, () => {
      for (const [alias, target] of this.#targets) this.#publish({ alias, target });
    });
    answering.ready.then(() => bus.publish(WANTED, ""));
  }

  #publish(change: Change): void {
    this.bus.publish(CHANGED, JSON.stringify(change));
  }

  set(alias: string, target: string): void {
    if (this.#targets.size >= ALIASES_MAX && !this.#targets.has(alias)) {
      fail("app_error", `There are ${ALIASES_MAX} aliases already, the maximum; remove some first`);
    }
    this.#publish({ alias, target });
  }

  remove(alias: string): void {
    this.#publish({ alias, target: null });
  }

  resolve(model: string): string {
    const target = this.#targets.get(model);
    if (target !== undefined || !model.startsWith(RESOURCE) || this.isKnown(model)) return target ?? model;
    return this.resolve(plainId(model));
  }

  list(): { alias: string; target: string }[] {
    return [...this.#targets]
      .map(([alias, target]) => ({ alias, target }))
      .sort((a, b) => (a.alias < b.alias ? -1 : 1));
  }
}
