import { type Database, insertRow } from "../../storage/contract.ts";
import type { ProviderChange } from "./service.ts";

interface ProviderRow {
  id: string;
  name: string;
  description: string;
  website_domain: string;
}

export class ProviderStore {
  constructor(readonly db: Database) {}

  list(): Promise<ProviderRow[]> {
    return this.db.all<ProviderRow>(
      "SELECT id, name, description, website_domain FROM providers ORDER BY id",
    );
  }

  async insert(row: ProviderRow & { created_at: string }): Promise<void> {
    await insertRow(this.db, "providers", row);
  }

  /** False when there is no such provider; fields that are not given keep their value. */
  async update(id: string, { name, description, website_domain }: ProviderChange): Promise<boolean> {
    const changed = await this.db.run(
      "UPDATE providers SET name = COALESCE($2, name), description = COALESCE($3, description), website_domain = COALESCE($4, website_domain) WHERE id = $1",
      [id, name ?? null, description ?? null, website_domain ?? null],
    );
    return changed > 0;
  }

  async remove(id: string): Promise<boolean> {
    return (await this.db.run("DELETE FROM providers WHERE id = $1", [id])) > 0;
  }
}
