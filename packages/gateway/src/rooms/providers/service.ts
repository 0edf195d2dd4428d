import { type Clock, isoTime, within } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { type Database, insertRow, isUniqueViolation } from "../../storage/contract.ts";
import { PROVIDER_CARDS } from "./cards.ts";

interface ProviderRow {
  id: string;
  name: string;
  description: string;
  website_domain: string;
}

type ProviderChange = Partial<Omit<ProviderRow, "id">>;

/** Liveness probes time out after a second or two and then restart the service. */
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

  async add(provider: Pick<ProviderRow, "id" | "name"> & ProviderChange): Promise<void> {
    const taken = () =>
      fail("conflict", `A provider with the id "${provider.id}" exists already; use providers.update`);
    if (isOfficial(provider.id)) taken();
    try {
      const row = { description: "", website_domain: "", ...provider };
      await insertRow(this.db, "providers", { ...row, created_at: isoTime(this.clock.now()) });
    } catch (error) {
      if (isUniqueViolation(error)) taken();
      throw error;
    }
  }

  /** Fields that are not given keep their value. */
  async update(id: string, { name, description, website_domain }: ProviderChange): Promise<void> {
    await this.#change(
      "UPDATE providers SET name = COALESCE($2, name), description = COALESCE($3, description), website_domain = COALESCE($4, website_domain) WHERE id = $1",
      [id, name ?? null, description ?? null, website_domain ?? null],
    );
  }

  async remove(id: string): Promise<void> {
    await this.#change("DELETE FROM providers WHERE id = $1", [id]);
  }

  async #change(sql: string, params: readonly [id: string, ...(string | null)[]]): Promise<void> {
    const [id] = params;
    if (isOfficial(id))
      fail("app_error", `"${id}" is a built-in provider and cannot be changed; add one of your own instead`);
    if ((await this.db.run(sql, params)) === 0)
      fail("not_found", `Provider not found: ${id}; providers.list shows the ids`);
  }
}
