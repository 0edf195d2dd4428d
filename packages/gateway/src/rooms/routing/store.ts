import type { CapabilityName } from "../../backends/contract.ts";
import type { Database } from "../../storage/contract.ts";
import type { Sealer } from "./sealer.ts";

/** A backend as it is kept: what the operator gave. */
export interface StoredBackend {
  name: string;
  type: string;
  url: string;
  apiKey: string | null;
  models: readonly string[];
  capabilities?: readonly CapabilityName[];
  concurrency?: number;
  workflow: unknown;
  enabled: boolean;
}

interface BackendRow {
  name: string;
  type: string;
  url: string;
  api_key: string | null;
  models: string;
  capabilities: string | null;
  workflow: string | null;
  concurrency: number | null;
  enabled: boolean;
}

const toStored = (row: BackendRow, apiKey: string | null): StoredBackend => ({
  name: row.name,
  type: row.type,
  url: row.url,
  apiKey,
  models: JSON.parse(row.models) as string[],
  ...(row.capabilities !== null && { capabilities: JSON.parse(row.capabilities) as CapabilityName[] }),
  ...(row.concurrency !== null && { concurrency: Number(row.concurrency) }),
  workflow: row.workflow === null ? null : JSON.parse(row.workflow),
  enabled: Boolean(row.enabled),
});

/** SQL of the registered backends. */
export class BackendStore {
  constructor(
    readonly db: Database,
    readonly sealer: Sealer,
    /** Called for a backend whose key cannot be read because it was sealed with another secret. */
    readonly onUnreadable: (name: string) => void = () => {},
  ) {}

  #keyOf({ name, api_key }: BackendRow): string | null {
    if (api_key === null) return null;
    const key = this.sealer.open(api_key, name);
    if (key === null) this.onUnreadable(name);
    return key;
  }

  /** In order of registration, which is what the indexes of the admin surface count. */
  async list(): Promise<StoredBackend[]> {
    const rows = await this.db.all<BackendRow>(
      "SELECT name, type, url, api_key, models, capabilities, workflow, concurrency, enabled FROM backend_configs ORDER BY registered_at, name",
    );
    return rows.map((row) => toStored(row, this.#keyOf(row)));
  }

  async save(backend: StoredBackend, now: string): Promise<void> {
    await this.db.run(
      `INSERT INTO backend_configs (name, type, url, api_key, models, capabilities, workflow, registered_at, updated_at, enabled, concurrency)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10)
       ON CONFLICT (name) DO UPDATE SET type = $2, url = $3, api_key = $4, models = $5, capabilities = $6,
         workflow = $7, updated_at = $8, enabled = $9, concurrency = $10`,
      [
        backend.name,
        backend.type,
        backend.url,
        backend.apiKey && this.sealer.seal(backend.apiKey, backend.name),
        JSON.stringify(backend.models),
        backend.capabilities ? JSON.stringify(backend.capabilities) : null,
        backend.workflow === null || backend.workflow === undefined ? null : JSON.stringify(backend.workflow),
        now,
        backend.enabled,
        backend.concurrency ?? null,
      ],
    );
  }

  async remove(name: string): Promise<void> {
    await this.db.run("DELETE FROM backend_configs WHERE name = $1", [name]);
  }
}
