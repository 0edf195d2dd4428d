import type { Bus } from "../../bus/contract.ts";
import { fail } from "../../kernel/errors.ts";

const CHANGED = "alias-changed";
const WANTED = "aliases-wanted";
const ALIASES_MAX = 10_000;

/** Google's clients put this before every model id. */
const RESOURCE = "models/";
export const plainId = (id: string): string => (id.startsWith(RESOURCE) ? id.slice(RESOURCE.length) : id);

interface Change {
  alias: string;
  target: string | null;
}

/** In memory only, and the same on all instances of a bus. */
export class Aliases {
  readonly #targets = new Map<string, string>();

  constructor(
    readonly bus: Bus,
    /** Whether a backend or a model route has exactly this name. */
    readonly isKnown: (model: string) => boolean = () => false,
  ) {
    bus.subscribe(CHANGED, (message) => {
      const { alias, target } = JSON.parse(message) as Change;
      if (target === null) this.#targets.delete(alias);
      else if (this.#targets.has(alias) || this.#targets.size < ALIASES_MAX) this.#targets.set(alias, target);
    });
    // A new instance asks the others for the aliases, which are stored nowhere else.
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
