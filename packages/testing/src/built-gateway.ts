import { Database } from "bun:sqlite";
import { join } from "node:path";
import { freePort } from "./services.ts";
import { until } from "./until.ts";

const ADMIN_TOKEN = "built-gateway-admin-token";

/**
 * Runs a built gateway with its demonstration in `dir`, and waits until the usage of a chat is in its database and in a
 * report: both are the work of threads whose code the program has to find within itself, or beside itself.
 */
export async function settleChat(
  command: readonly string[],
  { dir, env }: { dir: string; env: Record<string, string | undefined> },
): Promise<void> {
  const port = await freePort();
  const service = Bun.spawn([...command, "serve", "--demo"], {
    cwd: dir,
    env: {
      ...env,
      SERVICE_PORT: String(port),
      SERVICE_DATA_DIR: dir,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      SERVICE_WARM_UP: "0",
    },
    stdout: "pipe",
    stderr: "ignore",
  });
  try {
    let text = "";
    const decoder = new TextDecoder();
    for await (const chunk of service.stdout) {
      text += decoder.decode(chunk, { stream: true });
      if (text.includes("curl")) break;
    }
    const key = /service-[0-9a-f-]{36}/.exec(text)![0];
    const dataDir = /data\s+SQLite, (.*)/.exec(text)![1]!;
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        "x-service-ref": "built",
      },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hi" }] }),
    });
    if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
    using db = new Database(join(dataDir, "gateway.sqlite"), { readonly: true });
    const rows = db.query<{ n: number }, []>(
      "SELECT COUNT(*) AS n FROM usage_records WHERE ref_id = 'built'",
    );
    await until("the row is in the database", () => rows.get()!.n === 1);
    const report = await fetch(`http://127.0.0.1:${port}/api/admin/usage/query`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ ref_ids: ["built"] }),
    });
    const words = await report.text();
    if (!words.includes('"requests":1')) throw new Error(`no report of the usage: ${words}`);
  } finally {
    service.kill();
    await service.exited;
  }
}
