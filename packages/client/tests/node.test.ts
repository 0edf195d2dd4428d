import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootGateway, PASSWORD } from "@model-gateway/testing/gateway.ts";

test("the same client runs under Node", async () => {
  const gateway = await bootGateway();
  const dir = mkdtempSync(join(tmpdir(), "client-node-"));
  const source = join(dir, "try.ts");
  const index = join(import.meta.dir, "../src/index.ts");
  await Bun.write(
    source,
    `import { createClient } from ${JSON.stringify(index)};
     const client = createClient({ baseUrl: ${JSON.stringify(gateway.url)} });
     await client.signUp({ email: "node@example.com", password: ${JSON.stringify(PASSWORD)} });
     const key = await client.call("keys.create", { name: "from node" });
     const events = client.events(crypto.randomUUID(), { onOpen: () => console.log(JSON.stringify({ runtime: process.release.name, key: key.name })), signal: AbortSignal.timeout(500) });
     for await (const event of events) console.log(event);`,
  );
  const built = await Bun.build({ entrypoints: [source], target: "node", outdir: dir });
  expect(built.success).toBe(true);
  const child = Bun.spawn(["node", join(dir, "try.js")], { stdout: "pipe", stderr: "pipe" });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  expect([err, code]).toEqual(["", 0]);
  expect(JSON.parse(out)).toEqual({ runtime: "node", key: "from node" });
  rmSync(dir, { recursive: true, force: true });
  await gateway.stop();
});
