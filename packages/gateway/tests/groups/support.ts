import type { DatabaseName, TestDatabase } from "@model-gateway/testing/databases.ts";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { type BootOptions, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

export interface GatewayOnDatabase extends TestGateway {
  storage: TestDatabase["options"];
}

/** A booted service on a database of its own. */
export async function bootOn(
  kind: DatabaseName,
  overrides: BootOptions["overrides"] = {},
): Promise<GatewayOnDatabase> {
  const { options, drop } = await freshDatabase(kind);
  const gateway = await bootGateway({
    config: { databaseUrl: options.databaseUrl },
    dataDir: options.dataDir,
    overrides,
  });
  return {
    ...gateway,
    storage: options,
    async stop() {
      await gateway.stop();
      await drop();
    },
  };
}

export const emailOf = (name: string) => `${name}@example.com`;

/** Signs in several people; the first one ever is the platform's administrator. */
export async function signInAll<Name extends string>(
  gateway: TestGateway,
  names: readonly Name[],
): Promise<Record<Name, string>> {
  const tokens: Partial<Record<Name, string>> = {};
  for (const name of names) tokens[name] = await gateway.signIn(name);
  return tokens as Record<Name, string>;
}

/** Whether the key is accepted right now. */
export const keyWorks = async ({ app }: TestGateway, secret: string): Promise<boolean> =>
  (await app.rooms.keys.authenticate(secret)) !== null;
