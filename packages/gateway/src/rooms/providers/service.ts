import { type Clock, isoTime, within } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { type Database, isUniqueViolation } from "../../storage/contract.ts";
import { PROVIDER_CARDS } from "./cards.ts";
import { ProviderStore } from "./store.ts";

export interface Provider {
  id: string;
  name: string;
  description: string;
  website_domain: string;
  is_official: boolean;
  is_operator: boolean;
}

export type ProviderChange = Partial<Pick<Provider, "name" | "description" | "website_domain">>;

/** Liveness probes time out after a second or two and then restart the service. */
const COUNTED_WITHIN_MS = 500;

const isOfficial = (id: string) => PROVIDER_CARDS.some((card) => card.id === id);

export class Providers {
  readonly #store: ProviderStore;
  #lastCount = PROVIDER_CARDS.length;
  constructor(
    db: Database,
    readonly clock: Clock,
  ) {
    this.#store = new ProviderStore(db);
  }

  async list(): Promise<Provider[]> {
    const custom = await this.#store.list();
    return [
      ...PROVIDER_CARDS.map(({ apis: _, ...card }) => ({ ...card, is_official: true, is_operator: false })),
      ...custom.map((row) => ({ ...row, is_official: false, is_operator: true })),
    ];
  }

  /** How many are listed; the last known number while the database is down, so that probes still succeed. */
  async count(): Promise<number> {
    const read = this.list().then(
      ({ length }) => {
        this.#lastCount = length;
      },
      () => {},
    );
    await within(this.clock, COUNTED_WITHIN_MS, read);
    return this.#lastCount;
  }

  async add(provider: {
    id: string;
    name: string;
    description?: string;
    website_domain?: string;
  }): Promise<void> {
    const taken = () =>
      fail("conflict", `A provider with the id "${provider.id}" exists already; use providers.update`);
    if (isOfficial(provider.id)) taken();
    try {
      await this.#store.insert({
        description: "",
        website_domain: "",
        ...provider,
        created_at: isoTime(this.clock.now()),
      });
    } catch (error) {
      if (isUniqueViolation(error)) taken();
      throw error;
    }
  }

  async update(id: string, change: ProviderChange): Promise<void> {
    this.#refuseOfficial(id);
    if (!(await this.#store.update(id, change))) this.#notFound(id);
  }

  async remove(id: string): Promise<void> {
    this.#refuseOfficial(id);
    if (!(await this.#store.remove(id))) this.#notFound(id);
  }

  #refuseOfficial(id: string): void {
    if (isOfficial(id))
      fail("app_error", `"${id}" is a built-in provider and cannot be changed; add one of your own instead`);
  }

  #notFound(id: string): never {
    fail("not_found", `Provider not found: ${id}; providers.list shows the ids`);
  }
}
