import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { startMemoryServer } from "../../packages/memory-server/src/server.ts";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

const dataDir = mkdtempSync(join(tmpdir(), "console-memory-"));
let memory: ReturnType<typeof startMemoryServer>;
let site: Site;
beforeAll(async () => {
  memory = startMemoryServer({ dataDir, port: 0 });
  site = await openSite({ config: { memoryUrl: memory.url } });
  await site.withBackend();
});
afterAll(async () => {
  await site.stop();
  await memory.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

test("what is remembered can be found and forgotten, one by one", async () => {
  const { page, complaints } = await site.visitAs("operator");
  const token = await site.gateway.signIn("operator");
  const { key } = await site.gateway.rpc<{ key: string }>("keys.create", { name: "k" }, token);
  const content = "My cat is called Misty. My garden has a pond.";
  await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content }] }),
  }).then((answer) => answer.text());
  await until("both facts are written", async () => {
    const { total } = await site.gateway.rpc<{ total: number }>("memory.list", {}, token);
    return total === 2;
  });
  await page.goto(`${site.gateway.url}/memory`);
  const table = page.getByRole("region", { name: "What is remembered" });
  await table.getByText("My cat is called Misty.").waitFor();
  await shot(page, "memory-facts");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByLabel("Search what is remembered").fill("pond");
  await table.getByText("My cat is called Misty.").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Forget: My garden has a pond." }).click();
  await page.getByText("Nothing that is remembered contains").waitFor();
  await page.getByLabel("Search what is remembered").fill("");
  await table.getByText("My cat is called Misty.").waitFor();
  expect(await table.getByText("My garden has a pond.").count()).toBe(0);
  expect(complaints).toEqual([]);
});
