import { redisPrefix } from "@model-gateway/gateway/bus/redis/index.ts";
import { CliError } from "../command.ts";

const KEYS_PER_SCAN = 500;

/** Runs one of the Postgres client's programs; the password goes through the environment, where `ps` does not show it. */
function runTool(name: "pg_dump" | "psql", url: string, args: readonly string[]): void {
  const tool = Bun.which(name);
  if (!tool)
    throw new CliError(
      `${name} is not installed; install the Postgres client, or let your database's own backups do it`,
    );
  const target = new URL(url);
  const password = decodeURIComponent(target.password);
  target.password = "";
  const { exitCode, stderr } = Bun.spawnSync([tool, ...args, "--dbname", target.href], {
    env: { ...process.env, ...(password && { PGPASSWORD: password }) },
    stdout: "ignore",
    stderr: "pipe",
  });
  if (exitCode !== 0) throw new CliError(`${name} failed: ${stderr.toString().trim()}`);
}

/** One consistent snapshot, as SQL that any server of the same or a newer version takes. */
export function dumpPostgres(url: string, file: string): void {
  runTool("pg_dump", url, ["--no-owner", "--no-privileges", "--file", file]);
}

/** Restores all of the dump or none of it. */
export async function restorePostgres(
  url: string,
  file: string,
  { force }: { force: boolean },
): Promise<void> {
  const sql = new Bun.SQL(url, { max: 1 });
  try {
    const [{ n }] = await sql.unsafe(
      "SELECT CAST(COUNT(*) AS INTEGER) AS n FROM information_schema.tables WHERE table_schema = 'public'",
    );
    if (n > 0 && !force)
      throw new CliError("the database is not empty; --force drops its schema public and everything in it");
    if (n > 0) await sql.unsafe("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
  } finally {
    await sql.close();
  }
  runTool("psql", url, ["--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1", "--file", file]);
}

/** What instances shared about the database that was there before: limits, holds and balances. */
export async function forgetShared(redisUrl: string, service: string): Promise<void> {
  const client = new Bun.RedisClient(redisUrl);
  try {
    let cursor = "0";
    do {
      const pattern = `${redisPrefix(service)}*`;
      const [next, keys] = await client.scan(cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN);
      for (const key of keys) await client.del(key);
      cursor = String(next);
    } while (cursor !== "0");
  } finally {
    client.close();
  }
}
