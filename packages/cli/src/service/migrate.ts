import { type Config, readConfig } from "@model-gateway/gateway/config.ts";
import { openDatabase, openStorage } from "@model-gateway/gateway/storage/index.ts";
import { migrations } from "@model-gateway/gateway/storage/migrations/index.ts";
import { CliError, type Invocation } from "../command.ts";

/** The settings of the service on this machine, or what is wrong with them. */
export function serviceConfig(env: Record<string, string | undefined>): Config {
  const read = readConfig(env);
  if ("problems" in read) throw new CliError(read.problems.join("\n"));
  return read.config;
}

/** Ids of the applied migrations; none on a database that has never been used. */
export async function appliedMigrations(config: Config): Promise<number[]> {
  const db = await openDatabase(config);
  try {
    const rows = await db.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    return rows.map(({ id }) => id);
  } catch {
    return [];
  } finally {
    await db.close();
  }
}

export async function migrate({ output }: Invocation): Promise<void> {
  const config = serviceConfig(process.env);
  const before = new Set(await appliedMigrations(config));
  await (await openStorage(config)).close();
  const applied = migrations.filter(({ id }) => !before.has(id)).map(({ id, name }) => ({ id, name }));
  output.result({ applied, schema: migrations.at(-1)?.id ?? 0 }, () =>
    applied.length === 0
      ? "The schema is up to date"
      : [`Applied ${applied.length}:`, ...applied.map(({ id, name }) => `  ${id} ${name}`)],
  );
}
