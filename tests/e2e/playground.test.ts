import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { openSite, type Site, shot, type Visit } from "./support/site.ts";

const DOT =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
let site: Site;
let visit: Visit;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  visit = await site.visitAs("player");
});
afterAll(() => site.stop());

test("two models answer the same words side by side, with time, tokens and cost", async () => {
  const { page, complaints } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByLabel("Model 2").selectOption("demo-chat");
  await page.getByLabel("Your message").fill("hello **there**");
  await page.keyboard.press("Enter");
  await page.getByText("12 in, 4 out").nth(1).waitFor();
  expect(await page.getByText("You said: hello").count()).toBe(2);
  expect(await page.locator(".answer strong").allTextContents()).toEqual(["there", "there"]);
  expect(page.url()).toContain("compare=demo-chat");
  await page.getByText("unpriced").first().waitFor();
  await shot(page, "playground-compare");
  expect(complaints).toEqual([]);
});

test("stop really stops: the model is told", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-slow`);
  await page.getByLabel("Your message").fill("count");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("word3").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped").waitFor();
  await until("the end of the upstream's stream", () => site.upstream.aborted() === 1);
});

test("images, tools and parameters reach the model", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  await page.getByRole("button", { name: "Parameters" }).click();
  await page.getByLabel("Temperature").fill("0.5");
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Tools").fill('[{"type":"function","function":{"name":"get_weather"}}]');
  await page
    .locator("input[type=file]")
    .setInputFiles({ name: "dot.png", mimeType: "image/png", buffer: Buffer.from(DOT, "base64") });
  await page.getByRole("img", { name: "dot.png" }).waitFor();
  await page.getByLabel("Your message").fill("what is this?");
  const before = site.upstream.requests.length;
  await page.getByRole("button", { name: "Send" }).click();
  await until("the request", () => site.upstream.requests.length > before);
  await page.getByText("get_weather").last().waitFor();
  const sent = site.upstream.requests.at(-1)!;
  expect(sent).toMatchObject({
    temperature: 0.5,
    messages: [{ role: "system", content: "Be brief." }, { role: "user" }],
  });
  expect(sent.messages[1]?.content).toEqual([
    { type: "text", text: "what is this?" },
    { type: "image_url", image_url: { url: `data:image/png;base64,${DOT}` } },
  ]);
  expect(sent.tools).toHaveLength(1);
  await shot(page, "playground-parameters");
});

test("the request can be taken away as a program", async () => {
  const { page } = visit;
  await page.getByRole("button", { name: "View as code" }).click();
  const dialog = page.getByRole("dialog");
  for (const [language, words] of [
    ["curl", "/v1/chat/completions"],
    ["JavaScript", 'from "openai"'],
    ["Python", "from openai import OpenAI"],
  ] as const) {
    await dialog.getByRole("button", { name: language }).click();
    expect(await dialog.locator("pre").textContent()).toContain(words);
  }
  await shot(page, "playground-code");
});

test("a conversation is kept and goes on", async () => {
  const { page, complaints } = visit;
  await page.goto(`${site.gateway.url}/conversations`);
  await page.getByRole("button", { name: "New conversation" }).first().click();
  await page.getByLabel("Model", { exact: true }).selectOption("demo-chat");
  await page.getByLabel("Your message").fill("remember me");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("2 messages").waitFor();
  await page.reload();
  await page.getByText("You said: remember me").waitFor();
  await shot(page, "conversation");
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No conversations yet").waitFor();
  expect(complaints).toEqual([]);
});

test("voice and video say plainly what a model cannot do", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/voice`);
  await page.getByLabel("Model", { exact: true }).fill("demo-chat");
  await page.getByRole("button", { name: "Start talking" }).click();
  await page.getByText("does not support realtime").waitFor();
  await page.goto(`${site.gateway.url}/video`);
  await page.getByRole("button", { name: "New video" }).first().click();
  await page.getByLabel("Model", { exact: true }).fill("demo-chat");
  await page.getByLabel("What is to be seen").fill("A lighthouse in a storm");
  await page.getByRole("button", { name: "Start" }).click();
  const refusal = await page.getByRole("dialog").getByRole("alert").textContent();
  expect(refusal).toContain("demo-chat");
});
