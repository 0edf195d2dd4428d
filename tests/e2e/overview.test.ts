import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { completion, startUpstream } from "@model-gateway/testing/upstream.ts";
import { systemClock } from "../../packages/gateway/src/kernel/clock.ts";
import type { LocalServer } from "../../packages/gateway/src/rooms/system/index.ts";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
let key: string;
const localServers: LocalServer[] = [];
let aheadMs = 0;
const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
beforeAll(async () => {
  site = await openSite({ overrides: { localServers, clock } });
  const port = Number(new URL(site.upstream.url).port);
  localServers.push(
    { id: "vllm", label: "vLLM", type: "vllm", kind: "external", port },
    { id: "lm-studio", label: "LM Studio", type: "lmstudio", kind: "external", port: 1 },
  );
  const token = await site.gateway.signIn("operator");
  ({ key } = await site.gateway.rpc<{ key: string }>("keys.create", { name: "k" }, token));
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

const chat = async (body: Record<string, unknown>) => {
  const response = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "hi" }], ...body }),
  });
  await response.text();
  return response;
};

test("a model server on the machine is found and registered with one click, without the admin token", async () => {
  const { page, complaints } = await site.visitAs("operator");
  await page.getByText("1 model server found on the gateway's machine").waitFor();
  await page.getByText("demo-chat, demo-slow").waitFor();
  await shot(page, "first-run-found");
  await page.getByRole("button", { name: "Register", exact: true }).click();
  await page.getByText("Connect a model (done)").waitFor();
  const strip = page.getByRole("img", { name: /1 probe of vllm, 0 not healthy; the latest: .*Healthy/ });
  await strip.waitFor();
  expect(complaints).toEqual([]);
});

test("the last hour, first tokens and failures of everyone are an operator's to see, and nobody else's", async () => {
  await chat({});
  await chat({ stream: true });
  await chat({ model: "absent" });
  site.upstream.failing = true;
  const failed = await chat({});
  site.upstream.failing = false;
  const requestId = failed.headers.get("x-request-id") ?? "";

  const { page, complaints } = await site.visitAs("operator");
  await page.getByRole("img", { name: /4 requests in the last hour, by minute: answered 2/ }).waitFor();
  await page
    .getByRole("row", { name: /upstream failed demo-chat at vllm .*no worker is available/ })
    .waitFor();
  await page.getByRole("row", { name: /404 no such model unknown/ }).waitFor();
  await page.getByRole("button", { name: requestId.slice(-8) }).waitFor();
  const model = page.getByRole("row", { name: /^demo-chat [\d.]+ (ms|s) [\d.]+ (ms|s)/ });
  await model.waitFor();
  await page.getByRole("heading", { name: "Your latest requests" }).scrollIntoViewIfNeeded();
  await shot(page, "overview-operator");
  expect(await axeFindings(page)).toEqual([]);
  expect(complaints).toEqual([]);

  const asked: string[] = [];
  const member = await site.visitAs("somebody");
  member.page.on("request", (request) => asked.push(request.postData() ?? ""));
  await member.page.reload();
  await member.page.getByRole("heading", { name: "Your latest requests" }).waitFor();
  await member.page.getByText("No requests yet").waitFor();
  expect(await member.page.getByRole("heading", { name: "Latest failures" }).count()).toBe(0);
  expect(asked.filter((body) => body.includes("system.activity") || body.includes("backends."))).toEqual([]);
});

test("a backend that died is found with two clicks from the mail: its link, then the name on top", async () => {
  const dead = { name: "gone", type: "external", url: "http://127.0.0.1:1/v1", models: ["gone-1"] };
  const operator = await site.gateway.signIn("operator");
  await site.gateway.rpc("backends.add", dead, operator);
  const { page } = await site.visitAs("operator");
  await page.getByRole("link", { name: "gone", exact: true }).first().click();
  await page
    .getByRole("dialog", { name: "gone" })
    .getByText(/refused|cannot be reached|connect/i)
    .first()
    .waitFor();
  await site.gateway.rpc("backends.remove", { name: "gone" }, operator);
});

test("a conversation gets another title in place, and keeps it when the edit is left", async () => {
  const { page, complaints } = await site.visitAs("writer");
  const token = await site.gateway.signIn("writer");
  const { id } = await site.gateway.rpc<{ id: string }>("conversations.create", {}, token);
  await page.goto(`${site.gateway.url}/conversations/${id}`);
  await page.getByRole("button", { name: "Rename this conversation" }).click();
  await page.getByLabel("Title").fill("Plans for May");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Plans for May" }).waitFor();
  await page.getByRole("navigation", { name: "Conversations" }).getByText("Plans for May").waitFor();
  await page.getByRole("button", { name: "Rename this conversation" }).click();
  await page.getByLabel("Title").fill("something else");
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { name: "Plans for May" }).waitFor();
  await shot(page, "conversation-title");
  expect(complaints).toEqual([]);
});

test("a backend from whose cache nothing is read any more is flagged", async () => {
  const unlimited = { user_email: "operator@example.com", tier: "enterprise" };
  await site.gateway.rpc("billing.plan.set", unlimited, ADMIN_TOKEN);
  const vendor = startUpstream({ models: ["cached-1"] });
  await site.addBackend({ name: "vendor", type: "external", url: vendor.url });
  for (const { minutesAgo, cached_tokens } of [
    { minutesAgo: 480, cached_tokens: 4_500 },
    // What is lost is read once a minute.
    { minutesAgo: -2, cached_tokens: 0 },
  ]) {
    aheadMs = -minutesAgo * 60_000;
    const usage = { prompt_tokens: 5_000, completion_tokens: 1, prompt_tokens_details: { cached_tokens } };
    vendor.answer((_, reply) => reply.json(completion("ok", { usage })));
    for (const { status } of await Promise.all(Array.from({ length: 10 }, () => chat({ model: "cached-1" }))))
      expect(status).toBe(200);
    await site.gateway.app.rooms.usage.settled();
  }
  const { page, complaints } = await site.visitAs("operator");
  await page.getByText("Cached prompts: 0%, was 90%").waitFor();
  await page.goto(`${site.gateway.url}/models`);
  await page.getByRole("row", { name: /vendor.*Cached prompts: 0%, was 90%/ }).waitFor();
  await shot(page, "lost-cache");
  expect(complaints).toEqual([]);
  vendor.stop();
});
