import type { AuthName, DialectName } from "../../backends/contract.ts";
import { type Clock, isoTime, within } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { type Database, insertRow, updateRows } from "../../storage/contract.ts";
import table from "./cards.json" with { type: "json" };

/** One API of a provider; fills in the registration form. */
interface ProviderApi {
  serves: string;
  type: string;
  /** Parts in braces, such as the region, are for the operator to fill in. */
  url: string;
  needs_key: boolean;
  /** Its model listing does not tell what can be called. */
  needs_models?: boolean;
  dialects?: DialectName[];
  auth?: AuthName;
}

interface ProviderRow {
  id: string;
  name: string;
  description: string;
  website_domain: string;
}

/** A well-known provider; always listed, never changed or removed. Its first API is offered first. */
interface ProviderCard extends ProviderRow {
  apis: ProviderApi[];
}

/** As the providers' own documentation says. */
export const PROVIDER_CARDS = table as ProviderCard[];

type ProviderChange = Partial<Omit<ProviderRow, "id">>;

/** Liveness probes time out after a second or two, and then the service would be restarted. */
const COUNTED_WITHIN_MS = 500;

const isOfficial = (id: string) => PROVIDER_CARDS.some((card) => card.id === id);

export class Providers {
  #lastCount = PROVIDER_CARDS.length;
  constructor(
    readonly db: Database,
    readonly clock: Clock,
  ) {}

  async list() {
    const sql = "SELECT id, name, description, website_domain FROM providers ORDER BY id";
    const custom = await this.db.all<ProviderRow>(sql);
    return [
      ...PROVIDER_CARDS.map(({ apis: _, ...card }) => ({ ...card, is_official: true, is_operator: false })),
      ...custom.map((row) => ({ ...row, is_official: false, is_operator: true })),
    ];
  }

  /** How many are listed; the last known number while the database is down, so that probes succeed. */
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

  async add(provider: Pick<ProviderRow, "id" | "name"> & ProviderChange): Promise<void> {
    const row = { description: "", website_domain: "", ...provider, created_at: isoTime(this.clock.now()) };
    if (isOfficial(row.id) || !(await insertRow(this.db, "providers", row, "ON CONFLICT (id) DO NOTHING")))
      fail("conflict", `A provider with the id "${row.id}" exists already; use providers.update`);
  }

  /** Fields that are not given keep their value. */
  async update(id: string, change: ProviderChange): Promise<void> {
    await this.#change(id, () => updateRows(this.db, "providers", { id }, change));
  }

  async remove(id: string): Promise<void> {
    await this.#change(id, () => this.db.run("DELETE FROM providers WHERE id = $1", [id]));
  }

  async #change(id: string, work: () => Promise<number>): Promise<void> {
    if (isOfficial(id))
      fail("app_error", `"${id}" is a built-in provider and cannot be changed; add one of your own instead`);
    if ((await work()) === 0) fail("not_found", `Provider not found: ${id}; providers.list shows the ids`);
  }
}
