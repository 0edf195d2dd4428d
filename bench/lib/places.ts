import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Who administers a service with a past that was kept. */
export const KEEPER = { email: "bench@example.com", password: "bench password" };

/** Where a service keeps its data. */
export interface Place {
  dataDir: string;
  databaseUrl: string | null;
}

interface Wanted {
  /** A server; SQLite unless given. */
  postgres?: string | undefined;
  /** What is there under this name is used, and stays. */
  keep?: string | undefined;
}

/** A place for a service without a past, and one for a service with one. */
export async function makePlaces(prefix: string, { postgres, keep }: Wanted) {
  const suffix = crypto.randomUUID().slice(0, 8);
  const names = [`${prefix}_empty_${suffix}`, keep ?? `${prefix}_full_${suffix}`] as const;
  const server = postgres === undefined ? null : new Bun.SQL(postgres, { max: 1 });
  const there: { datname: string }[] = (await server?.unsafe("SELECT datname FROM pg_database")) ?? [];
  for (const name of names)
    if (!there.some(({ datname }) => datname === name)) await server?.unsafe(`CREATE DATABASE ${name}`);
  const placeOf = (name: string): Place => ({
    dataDir: name === keep ? join(tmpdir(), name) : mkdtempSync(join(tmpdir(), `${name}-`)),
    databaseUrl:
      postgres === undefined ? null : Object.assign(new URL(postgres), { pathname: `/${name}` }).href,
  });
  const both = [placeOf(names[0]), placeOf(names[1])] as const;
  return {
    both,
    remove: async () => {
      for (const [i, name] of names.entries()) {
        if (name === keep) continue;
        await server?.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
        rmSync(both[i]!.dataDir, { recursive: true, force: true });
      }
      await server?.close();
    },
  };
}
