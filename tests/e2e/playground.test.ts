import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { axeFindings, openSite, pick, type Site, shot, type Visit } from "./support/site.ts";

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
  await pick(page, "Model 2", "demo-chat");
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
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("word3").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped").waitFor();
  await until("the end of the upstream's stream", () => site.upstream.aborted() === 1);
});

test("images, tools and parameters reach the model", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  await page.getByRole("button", { name: "New" }).click();
  await page.getByLabel("Temperature").fill("0.5");
  await page.getByLabel("Top p").fill("0.9");
  await page.getByLabel("Other fields").fill('{"seed": 7}');
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Tools").fill('[{"type":"function","function":{"name":"get_weather"}}]');
  await page
    .locator("input[type=file]")
    .setInputFiles({ name: "dot.png", mimeType: "image/png", buffer: Buffer.from(DOT, "base64") });
  await page.getByRole("img", { name: "dot.png" }).waitFor();
  await page.getByLabel("Your message").fill("what is this?");
  const before = site.upstream.requests.length;
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await until("the request", () => site.upstream.requests.length > before);
  await page.getByText("get_weather").last().waitFor();
  const sent = site.upstream.requests.at(-1)!;
  expect(sent).toMatchObject({
    temperature: 0.5,
    top_p: 0.9,
    seed: 7,
    messages: [{ role: "system", content: "Be brief." }, { role: "user" }],
  });
  expect(sent.messages[1]?.content).toEqual([
    { type: "text", text: "what is this?" },
    { type: "image_url", image_url: { url: `data:image/png;base64,${DOT}` } },
  ]);
  expect(sent.tools).toHaveLength(1);
  await shot(page, "playground-parameters");
  expect(await axeFindings(page)).toEqual([]);

  // The person stands in for the tool, and the model goes on with what it returned.
  await page.getByLabel("Result of get_weather").fill('{"celsius": 21}');
  await page.getByRole("button", { name: "Return the result" }).click();
  await until("the second request", () => site.upstream.requests.length === before + 2);
  expect(site.upstream.requests.at(-1)!.messages.slice(2)).toMatchObject([
    { role: "assistant", tool_calls: [{ id: "t1", function: { name: "get_weather" } }] },
    { role: "tool", tool_call_id: "t1", content: '{"celsius": 21}' },
  ]);
  await page.getByText("Result of get_weather").first().waitFor();
});

test("what was said, the panes and the parameters are still there after other pages and a reload", async () => {
  const { page, complaints } = visit;
  await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "New" }).click();
  await page.getByLabel("Tools").fill("");
  await page.getByRole("button", { name: "Compare" }).click();
  await pick(page, "Model 2", "demo-slow");
  await page.getByLabel("Your message").fill("stay");
  await page.keyboard.press("Enter");
  const answers = page.getByRole("region", { name: "Answers", exact: true });
  await answers.getByText("word5 ").waitFor();
  await page.getByLabel("Your message").fill("a draft");
  await page.getByRole("link", { name: "Keys" }).first().click();
  await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
  await page.getByRole("link", { name: "Playground" }).first().click();
  await answers.getByText("You said: stay").waitFor();
  await answers.getByText("word15 ").waitFor();
  await page.reload();
  await answers.getByText("You said: stay").waitFor();
  expect(await page.getByLabel("Model 2", { exact: true }).inputValue()).toBe("demo-slow");
  expect(await page.getByLabel("Temperature").inputValue()).toBe("0.5");
  expect(await page.getByLabel("Your message").inputValue()).toBe("a draft");
  // The answer that was under way goes on to its end.
  site.upstream.hurry();
  await answers.getByText(/word58 word59/).waitFor();
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
  await page.getByLabel("Your message").fill("");
  expect(complaints).toEqual([]);
});

test("the model of the last time is remembered, and gives way to another when it is gone", async () => {
  const { page, complaints } = visit;
  await site.addBackend({ name: "passing", type: "external", url: site.upstream.url, models: ["passing-1"] });
  const model = page.getByLabel("Model", { exact: true });
  const leaveAndReturn = async () => {
    await page.getByRole("link", { name: "Keys" }).first().click();
    await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
    await page.getByRole("link", { name: "Playground" }).first().click();
    await model.waitFor();
  };
  /** What is chosen is remembered once it is known that it can be called. */
  const open = async (search: string) => {
    await page.goto(`${site.gateway.url}/playground${search}`);
    await page.getByPlaceholder("No model can be called yet").waitFor();
  };
  await open("?model=passing-1");
  await leaveAndReturn();
  expect([await model.inputValue(), new URL(page.url()).search]).toEqual(["passing-1", ""]);
  const token = await site.gateway.signIn("player");
  await site.gateway.rpc("routes.set", { name: "a-route", targets: [{ model: "demo-chat" }] }, token);
  await open("?model=a-route");
  await leaveAndReturn();
  expect(await model.inputValue()).toBe("a-route");

  // What cannot be called is shown as the address names it, but not remembered.
  await open("?model=never-there");
  expect(await model.inputValue()).toBe("never-there");
  await leaveAndReturn();
  expect(await model.inputValue()).toBe("a-route");

  await site.gateway.rpc("routes.delete", { name: "a-route" }, token);
  await site.gateway.rpc("backends.remove", { name: "passing" }, token);
  await page.goto(`${site.gateway.url}/playground`);
  await until("another model", async () => (await model.inputValue()) === "demo-chat");
  await page.getByLabel("Your message").fill("who is there?");
  await page.keyboard.press("Enter");
  await page.getByText("You said: who is there?").waitFor();
  expect(complaints).toEqual([]);
});

test("up to four models answer at once", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  await page.getByRole("button", { name: "New" }).click();
  const compare = page.getByRole("button", { name: "Compare" });
  for (let i = 0; i < 3; i++) await compare.click();
  expect(await compare.isDisabled()).toBe(true);
  for (const pane of [2, 3, 4]) await pick(page, `Model ${pane}`, "demo-chat");
  await page.getByLabel("Your message").fill("all of you");
  await page.keyboard.press("Enter");
  await page.getByText("You said: all of you").nth(3).waitFor();
  await shot(page, "playground-four");
  await page.getByRole("button", { name: "Close the pane of demo-chat" }).last().click();
  expect(new URL(page.url()).searchParams.has("compare-3")).toBe(false);
  expect(await page.getByText("You said: all of you").count()).toBe(3);
  await page.reload();
  await page.getByText("You said: all of you").nth(2).waitFor();
  expect(await page.getByText("You said: all of you").count()).toBe(3);
});

test("the request can be taken away as a program: what was sent, not what would be sent now", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  await page.getByRole("button", { name: "New" }).click();
  await page.getByLabel("Your message").fill("as it was");
  await page.keyboard.press("Enter");
  await page.getByText("You said: as it was").waitFor();
  await page.getByLabel("Temperature").fill("1.5");
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
  await dialog.getByRole("button", { name: "curl" }).click();
  const body = (await dialog.locator("pre").textContent())!.split("-d '")[1]!.slice(0, -1);
  const { stream: _, ...shown } = JSON.parse(body);
  const {
    stream: __,
    stream_options: ___,
    ...sent
  } = site.upstream.requests.at(-1) as Record<string, unknown>;
  expect(shown).toEqual(sent);
  expect(shown.temperature).toBe(0.5);
  await shot(page, "playground-code");
  expect(await axeFindings(page)).toEqual([]);
  await page.keyboard.press("Escape");
});

test("a conversation is kept and goes on", async () => {
  const { page, complaints } = visit;
  await page.goto(`${site.gateway.url}/conversations`);
  await page.getByRole("link", { name: "New" }).click();
  await pick(page, "Model", "demo-chat");
  await page.getByLabel("Your message").fill("remember me");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("2 messages").waitFor();
  await page.reload();
  await page.getByText("You said: remember me").waitFor();
  await shot(page, "conversation");
  await page.getByRole("button", { name: "Delete the conversation" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No conversations yet").waitFor();
  expect(complaints).toEqual([]);
});
