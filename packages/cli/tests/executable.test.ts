/** The built executable finds the code of its threads within itself. */

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";

const root = join(import.meta.dir, "../../..");

test(
  "the executable brings the usage of a chat into its database",
  async () => {
    const dir = mkdtempSync(join(tmpdir(), "gateway-executable-"));
    const outfile = join(dir, "model-gateway");
    const built = Bun.spawnSync([process.execPath, "scripts/build-gateway.ts", "--outfile", outfile], {
      cwd: root,
    });
    expect(built.exitCode).toBe(0);
    const port = await freePort();
    // Elsewhere than the sources, which it must not need.
    const service = Bun.spawn([outfile, "serve", "--demo"], {
      cwd: dir,
      env: { ...process.env, SERVICE_PORT: String(port), SERVICE_DATA_DIR: dir },
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
      const db = new Database(join(dataDir, "gateway.sqlite"), { readonly: true });
      const rows = () =>
        db
          .query<{ n: number }, []>("SELECT COUNT(*) AS n FROM usage_records WHERE ref_id = 'executable'")
          .get()!.n;
      const url = `http://127.0.0.1:${port}/v1/chat/completions`;
      const answer = await fetch(url, {
        method: "POST",
        headers: {
          authorization: `Bearer ${key}`,
          "content-type": "application/json",
          "x-service-ref": "executable",
        },
        body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hi" }] }),
      });
      expect(answer.status).toBe(200);
      await until("the row is in the database", () => rows() === 1);
      db.close();
    } finally {
      service.kill();
      await service.exited;
      rmSync(dir, { recursive: true, force: true });
    }
  },
  { timeout: 120_000 },
);
