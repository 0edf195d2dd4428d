/**
 * `bun bench/board/prepare.ts <folder with definition.json> [<port of the upstream>]`: makes `data` in that folder, with
 * which the service serves the board's load: a backend for each column of the board, all at its mock, and one account
 * with the key that the definition declares.
 *
 * The load generator sends one credential, which it must know before the service is first started, while keys are
 * chosen by the service. So the hash of the declared one is written in place of that of a real key.
 */
import { join } from "node:path";
import { startApp } from "../../packages/gateway/src/app/index.ts";
import { readConfig } from "../../packages/gateway/src/config.ts";
import { silentLog } from "../../packages/gateway/src/kernel/log.ts";
import { prefixOf } from "../../packages/gateway/src/rooms/keys/service.ts";
import { openStorage } from "../../packages/gateway/src/storage/index.ts";
import { ADMIN_TOKEN, post, RAISE_TIERS, rpc, signUp } from "../lib/gateway.ts";

/** Where the board's harness has its mock; its definitions name it, too, where they cannot be told. */
const MOCK_PORT = 8000;
const DIALECTS: Record<string, { dialect: string; base: string }> = {
  openai: { dialect: "chat", base: "/v1" },
  "openai-responses": { dialect: "responses", base: "/v1" },
  anthropic: { dialect: "messages", base: "/v1" },
  gemini: { dialect: "gemini", base: "/v1beta" },
};

export interface Definition {
  auth: string;
  egress: string[];
  egress_models: Record<string, string>;
}

export async function prepare(folder: string, upstreamPort = MOCK_PORT): Promise<void> {
  const definition = (await Bun.file(join(folder, "definition.json")).json()) as Definition;
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: join(folder, "data"),
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    SERVICE_WARM_UP: "0",
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  const app = await startApp(read.config, { log: silentLog });
  const { email, accessToken } = await signUp(app.url);
  await rpc(app.url, "billing.plan.set", { user_email: email, tier: "enterprise" }, ADMIN_TOKEN);
  const { id } = await rpc(app.url, "keys.create", { name: "board" }, accessToken);
  for (const name of definition.egress) {
    const { dialect, base } = DIALECTS[name]!;
    const backend = {
      type: "external",
      name,
      url: `http://127.0.0.1:${upstreamPort}${base}`,
      api_key: "dummy",
      models: [definition.egress_models[name]],
      dialects: [dialect],
    };
    await post(`${app.url}/api/admin/backends`, backend, ADMIN_TOKEN);
  }
  await app.stop();
  const db = await openStorage(read.config);
  const hash = new Bun.CryptoHasher("sha256").update(definition.auth).digest("hex");
  const prefix = prefixOf(definition.auth);
  await db.run("UPDATE api_keys SET key_hash = $1, key_prefix = $2 WHERE id = $3", [hash, prefix, id!]);
  await db.run(RAISE_TIERS);
  await db.close();
}

if (import.meta.main) {
  const [folder, port] = process.argv.slice(2);
  if (!folder) throw new Error("name the folder with definition.json");
  await prepare(folder, port === undefined ? undefined : Number(port));
  process.exit(0);
}
