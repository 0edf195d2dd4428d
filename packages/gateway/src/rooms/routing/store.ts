import type { BackendConfig, BackendSettings, CapabilityName, DialectName } from "../../backends/contract.ts";
import { type Database, type Queryable, type Transaction, upsertRow } from "../../storage/contract.ts";
import type { Sealer } from "./sealer.ts";

/** What the operator registered. */
export interface StoredBackend extends Omit<BackendConfig, "kind" | "dialect"> {
  workflow: unknown;
  enabled: boolean;
}

export interface SavedBackend extends StoredBackend {
  /** The registration index, which is never reused. */
  index: number;
}

/** Held while indexes are assigned and removed. */
const LOCK = "backend-indexes";

interface BackendRow {
  position: number;
  name: string;
  type: string;
  url: string;
  api_key: string | null;
  models: string;
  capabilities: string | null;
  dialects: string | null;
  workflow: string | null;
  concurrency: number | null;
  settings: string | null;
  enabled: boolean;
}

/** Leaves out settings that are not set. */
export function settingsOf(given: GivenSettings): BackendSettings {
  const isSet = (value: unknown) => value && (typeof value !== "object" || Object.keys(value).length > 0);
  return Object.fromEntries(SETTINGS.flatMap((name) => (isSet(given[name]) ? [[name, given[name]]] : [])));
}
type GivenSettings = { [Name in keyof BackendSettings]: BackendSettings[Name] | null };
const SETTINGS = [
  ...(["auth", "limit_field", "id_prefix", "headers", "set", "drop"] as const),
  ...(["believe_cost", "fields", "tool_prices", "shared_files", "batches"] as const),
] satisfies (keyof BackendSettings)[];

const jsonOf = (value: unknown): string | null => (value == null ? null : JSON.stringify(value));

const toStored = (row: BackendRow, apiKey: string | null, settings: string | null): StoredBackend => ({
  name: row.name,
  type: row.type,
  url: row.url,
  apiKey,
  models: JSON.parse(row.models) as string[],
  ...(row.capabilities !== null && { capabilities: JSON.parse(row.capabilities) as CapabilityName[] }),
  ...(row.dialects !== null && { dialects: JSON.parse(row.dialects) as DialectName[] }),
  ...(row.concurrency !== null && { concurrency: Number(row.concurrency) }),
  workflow: row.workflow === null ? null : JSON.parse(row.workflow),
  enabled: Boolean(row.enabled),
  ...(settings !== null && (JSON.parse(settings) as Partial<StoredBackend>)),
});

export class BackendStore {
  constructor(
    readonly db: Database,
    readonly sealer: Sealer,
    /** Called for a backend whose secrets were sealed with another key. */
    readonly onUnreadable: (name: string) => void = () => {},
  ) {}

  #opened(name: string, sealed: string | null): string | null {
    const secret = sealed && this.sealer.open(sealed, name);
    if (sealed !== null && secret === null) this.onUnreadable(name);
    return secret;
  }

  async list(): Promise<SavedBackend[]> {
    const rows = await this.db.all<BackendRow>(
      `SELECT position, c.name, type, url, api_key, models, capabilities, dialects, workflow, concurrency, settings, enabled
       FROM backend_configs c JOIN backend_indexes i ON i.name = c.name ORDER BY position`,
    );
    return rows.map((row) => {
      const [key, settings] = [row.api_key, row.settings].map((sealed) => this.#opened(row.name, sealed));
      return { ...toStored(row, key ?? null, settings ?? null), index: row.position };
    });
  }

  indexOf(name: string): Promise<number> {
    return this.#locked((tx) => indexIn(tx, name));
  }

  #locked<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.db.transaction(async (tx) => {
      await tx.lock(LOCK);
      return work(tx);
    });
  }

  /** Returns its index, which stays the same when a backend is replaced. */
  save(backend: StoredBackend, now: string): Promise<number> {
    const settings = { ...settingsOf(backend), ...(backend.seen && { seen: backend.seen }) };
    const sealed =
      Object.keys(settings).length > 0 ? this.sealer.seal(JSON.stringify(settings), backend.name) : null;
    return this.#locked(async (tx) => {
      const { name, type, url, apiKey, enabled, concurrency = null } = backend;
      const row = {
        ...{ name, type, url, enabled, concurrency, settings: sealed },
        api_key: apiKey && this.sealer.seal(apiKey, name),
        models: JSON.stringify(backend.models),
        capabilities: jsonOf(backend.capabilities),
        workflow: jsonOf(backend.workflow),
        dialects: jsonOf(backend.dialects),
        registered_at: now,
        updated_at: now,
      };
      await upsertRow(tx, "backend_configs", row, { key: "name", kept: ["registered_at"] });
      return indexIn(tx, name);
    });
  }

  remove(index: number): Promise<string | null> {
    return this.#locked(async (tx) => {
      const found = await tx.get<{ name: string }>(
        "SELECT c.name FROM backend_configs c JOIN backend_indexes i ON i.name = c.name WHERE position = $1",
        [index],
      );
      if (!found) return null;
      await tx.run("DELETE FROM backend_configs WHERE name = $1", [found.name]);
      await tx.run("UPDATE backend_indexes SET name = NULL WHERE position = $1", [index]);
      // Counting continues from the highest index. When no backend is left, it starts again.
      await tx.run(
        `DELETE FROM backend_indexes WHERE name IS NULL AND (position < (SELECT MAX(position) FROM backend_indexes)
           OR NOT EXISTS (SELECT 1 FROM backend_indexes WHERE name IS NOT NULL))`,
      );
      return found.name;
    });
  }
}

async function indexIn(tx: Queryable, name: string): Promise<number> {
  const indexFrom = (sql: string) => tx.get<{ position: number }>(sql, [name]);
  const known = await indexFrom("SELECT position FROM backend_indexes WHERE name = $1");
  const added = `INSERT INTO backend_indexes (position, name)
    SELECT COALESCE(MAX(position) + 1, 0), CAST($1 AS TEXT) FROM backend_indexes RETURNING position`;
  return Number((known ?? (await indexFrom(added)))!.position);
}
