import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { startAnthropic } from "@model-gateway/testing/vendors/anthropic.ts";
import { dialRaw } from "../../packages/gateway/tests/agents/support.ts";
import { axeFindings, openSite, pick, type Site, shot } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite();
  await site.gateway.signIn("operator");
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

test("backends: a server is tested and registered, its status is one sentence, it is priced, edited, disabled and removed", async () => {
  const { page } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/models`);
  await page.getByText("No backend is registered").waitFor();

  await page.getByRole("button", { name: "Register backend" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: /^MiniMax/ }).waitFor();
  await shot(page, "provider-grid");
  expect(await axeFindings(page)).toEqual([]);
  // A provider's card fills in what is known of it; another of its services, another address.
  await dialog.getByRole("button", { name: /^Alibaba Cloud/ }).click();
  expect(await dialog.getByLabel("Address").inputValue()).toContain("/compatible-mode/v1");
  await dialog.getByLabel("Service").selectOption({ label: "Video" });
  expect(await dialog.getByLabel("Address").inputValue()).toBe("https://dashscope-intl.aliyuncs.com");
  expect(new URL(page.url()).searchParams.get("provider")).toBe("alibaba");
  await dialog.getByRole("button", { name: "All providers" }).click();
  await dialog.getByRole("button", { name: /^Another server/ }).click();
  // The fields are those that the kind declares: Ollama's server lists its own models.
  const models = dialog.getByLabel("Models");
  expect(await dialog.getByLabel("Kind").inputValue()).toBe("Find out");
  expect(await models.count()).toBe(0);
  await pick(page, "Kind", "Engine (WebSocket)");
  await models.waitFor();
  expect(await dialog.getByLabel("Address").getAttribute("placeholder")).toMatch(/^ws:/);
  await shot(page, "register-backend");
  await pick(page, "Kind", "Find out");
  await dialog.getByLabel("Address").fill(site.upstream.url);
  await dialog.getByLabel("Name").fill("demo");
  await dialog.getByRole("button", { name: "Test connection" }).click();
  await dialog.getByText(/Answers.*2 models found, 2 unpriced/).waitFor();
  await dialog.getByRole("button", { name: "Set price of demo-slow" }).waitFor();
  await shot(page, "backend-tested");
  // What does not answer is told before it is saved.
  await dialog.getByLabel("Address").fill("http://127.0.0.1:9");
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await dialog.getByText("The test failed").waitFor();
  await dialog.getByLabel("Address").fill(site.upstream.url);
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await page.getByRole("row", { name: /demo.*Serving.*2 unpriced/ }).waitFor();
  await shot(page, "backends");
  await page.getByRole("button", { name: "Set price of demo-chat" }).click();
  await page.getByLabel("In, $ per million tokens").fill("0.5");
  await page.getByLabel("Out, $ per million tokens").fill("2");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /demo.*Serving.*1 unpriced/ }).waitFor();
  await page.goto(`${site.gateway.url}/models/list`);
  await page.getByRole("button", { name: "Import prices" }).click();
  const entry = { litellm_provider: "openai", input_cost_per_token: 1e-6, output_cost_per_token: 2e-6 };
  const list = { "demo-chat": { ...entry, cache_read_input_token_cost: 1e-7 } };
  const buffer = Buffer.from(JSON.stringify(list));
  await page
    .getByLabel("Price list")
    .setInputFiles({ name: "prices.json", mimeType: "application/json", buffer });
  const change = page.getByRole("row", { name: /demo-chat.*0.5 → 1.*2.*none → 0.1.*openai\/demo-chat/ });
  await change.waitFor();
  const head = page.getByRole("dialog").getByRole("columnheader").first();
  const [headBox, rowBox] = [await head.boundingBox(), await change.boundingBox()];
  expect(headBox!.y + headBox!.height).toBeLessThanOrEqual(rowBox!.y + 1);
  await shot(page, "import-prices");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByText("1 price is in force").waitFor();
  await page.goto(`${site.gateway.url}/models`);

  site.upstream.failing = true;
  const token = await site.gateway.signIn("operator");
  const { key } = await site.gateway.rpc<{ key: string }>("keys.create", { name: "k" }, token);
  for (let i = 0; i < 3; i++)
    await fetch(`${site.gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: `hi ${i}` }] }),
    });
  await page
    .getByRole("row", { name: /demo.*demo-chat paused after 3 errors.*no worker is available/ })
    .waitFor();
  site.upstream.failing = false;
  await page.getByRole("row", { name: /demo/ }).click();
  await page.getByRole("dialog", { name: "demo" }).waitFor();
  await shot(page, "backend-circuit");
  const sheet = page.getByRole("dialog", { name: "demo", exact: true });
  await sheet.getByRole("button", { name: "Probe now" }).click();
  await page.getByText("demo was probed").waitFor();
  await sheet.getByRole("button", { name: "Disable" }).click();
  await sheet.getByText("Disabled", { exact: true }).waitFor();
  await shot(page, "backend-disabled");
  await sheet.getByRole("button", { name: "Enable" }).click();
  await sheet.getByText("Serving", { exact: true }).waitFor();
  await sheet.getByRole("button", { name: "Edit" }).click();
  const edit = page.getByRole("dialog", { name: "Edit demo" });
  await edit.getByLabel("Models").fill("hand-written");
  await edit.getByRole("button", { name: "Save" }).click();
  await sheet.getByText("hand-written").first().waitFor();
  await sheet.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog", { name: "Remove demo?" }).getByRole("button", { name: "Remove" }).click();
  await page.getByText("No backend is registered").waitFor();
});

test("backends: a card fills in how its provider is spoken to, and the test says which agents can work with it", async () => {
  const anthropic = startAnthropic();
  const { page } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/models?new=1&provider=anthropic`);
  const dialog = page.getByRole("dialog");
  await dialog.getByText("How it is spoken to").click();
  expect(await dialog.getByLabel("Dialects").inputValue()).toBe("messages");
  await dialog.getByLabel("API key").fill(anthropic.apiKey);
  await dialog.getByLabel("Address").fill(anthropic.url);
  await dialog.getByRole("button", { name: "Test connection" }).click();
  await dialog.getByText("Claude Code ✓").waitFor();
  await dialog.getByText("charged to nobody here").waitFor();
  await shot(page, "backend-contact");
  expect(await axeFindings(page)).toEqual([]);
  await dialog.getByRole("button", { name: "Register", exact: true }).click();
  await page.getByRole("row", { name: /anthropic.*Claude Code ✓, Codex ✓, Gemini CLI ✓.*Serving/ }).click();
  const sheet = page.getByRole("dialog");
  await sheet.getByText(/Speaks messages/).waitFor();
  await sheet.getByRole("button", { name: "Test", exact: true }).click();
  await page.getByText("anthropic was tested").waitFor();
  await sheet.getByText(/\d+ trials/).click();
  await sheet.getByText("tools with an effort").waitFor();
  await shot(page, "backend-seen");
  await page.setViewportSize({ width: 390, height: 844 });
  await shot(page, "backend-seen-phone");
  expect(await page.content()).not.toContain(anthropic.apiKey);
  anthropic.stop();
  await site.gateway.rpc("backends.remove", { name: "anthropic" }, await site.gateway.signIn("operator"));
});

test("model routes: one is added, its targets are seen to serve or not, edited and removed; bad fields are named where they are", async () => {
  await site.withBackend();
  const { page } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/models/routes`);
  await page.getByText("No model route is set").waitFor();
  await page.getByRole("button", { name: "Add a model route" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name that programs send").fill("fast");
  await dialog.getByRole("group", { name: "Target 1" }).getByLabel("Model").fill("demo-chat");
  await dialog.getByRole("group", { name: "Target 1" }).getByLabel("Weight").fill("3");
  await dialog.getByRole("button", { name: "Add target" }).click();
  const second = dialog.getByRole("group", { name: "Target 2" });
  await second.getByLabel("Model").fill("demo-slow");
  await dialog.getByRole("button", { name: "Add target" }).click();
  const third = dialog.getByRole("group", { name: "Target 3" });
  await third.getByLabel("Model").fill(" ");
  await third.getByLabel("Order").fill("2");
  await dialog.getByRole("button", { name: "Save" }).click();
  await third.getByText("Must not be empty").waitFor();
  await dialog.getByText("Model of target 3 must not be empty").waitFor();
  expect(await third.getByLabel("Model").getAttribute("aria-invalid")).toBe("true");
  await third.getByLabel("Model").fill("elsewhere");
  await dialog.getByLabel("Try the next target after").fill("2.5");
  await shot(page, "route-form");
  await dialog.getByRole("button", { name: "Save" }).click();
  const row = page.getByRole("row", { name: /^fast.*2\.5 s/ });
  await row.getByText("75% of the calls").waitFor();
  await row.getByText("no backend lists it").waitFor();
  expect(await row.getByText("demo", { exact: true }).count()).toBe(2);
  await shot(page, "routes");

  const token = await site.gateway.signIn("operator");
  const { key } = await site.gateway.rpc<{ key: string }>("keys.create", { name: "r" }, token);
  const answer = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "fast", messages: [{ role: "user", content: "hi" }] }),
  });
  expect(answer.status).toBe(200);

  // What would be gone after a restart is not offered beside what stays.
  expect(await page.getByText(/alias/i).count()).toBe(0);
  // To everyone it is a model like any other, and to those who administer nothing as well.
  const { page: members } = await site.signedInAs("somebody");
  await members.goto(`${site.gateway.url}/catalogue`);
  const listed = members.getByRole("row", { name: /^fast.*route: demo-chat, then demo-slow.*Serving.*chat/ });
  await listed.getByRole("link", { name: "Try" }).click();
  await members.getByRole("heading", { name: "Playground" }).waitFor();
  expect(await members.getByLabel("Model", { exact: true }).inputValue()).toBe("fast");

  await page.getByRole("button", { name: "Edit fast" }).click();
  await dialog.getByRole("button", { name: "Remove target 2" }).click();
  await dialog.getByRole("button", { name: "Save" }).click();
  await row.getByText("75% of the calls").waitFor({ state: "detached" });
  await site.gateway.rpc("backends.update", { name: "demo", enabled: false }, token);
  await page.getByText("A route without a target that serves refuses every call").waitFor();
  await page.getByRole("button", { name: "Remove fast" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("No model route is set").waitFor();
  await site.gateway.rpc("backends.remove", { name: "demo" }, token);
});

test("prices and tiers", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  // Each model is priced by what it does: a video by the second, an image by its looks.
  const token = await site.gateway.signIn("operator");
  await site.withBackend();
  await site.addBackend({ name: "films", type: "cloud-video", url: site.upstream.url, models: ["film-2"] });
  await page.goto(`${site.gateway.url}/models/list`);
  await page.getByRole("row", { name: /film-2.*unpriced.*default: \$0\.005 a second/ }).waitFor();
  await page.getByRole("button", { name: "Set price of film-2" }).click();
  await page.getByLabel("Each second, $").fill("0.05");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /film-2.*films.*\$0\.05 a second/ }).waitFor();
  const { page: members } = await site.signedInAs("somebody");
  await members.goto(`${site.gateway.url}/catalogue`);
  const film = members.getByRole("row", { name: /film-2.*Serving.*video.*\$0\.05 a second/ });
  expect(await film.textContent()).not.toContain("unpriced");
  await page.getByRole("button", { name: "Set price of demo-slow" }).click();
  await page.getByLabel("Charged by").selectOption("image");
  await page.getByLabel("By quality or size").fill("1024x1024 dear");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText('"1024x1024 dear" is not a price').waitFor();
  await page.getByLabel("By quality or size").fill("1024x1024 0.04\nhd/1024x1024 0.08");
  await shot(page, "set-price-image");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /demo-slow.*demo.*\$0\.04 to \$0\.08 an image/ }).waitFor();
  await shot(page, "models-priced");
  for (const name of ["films", "demo"]) await site.gateway.rpc("backends.remove", { name }, token);

  await page.goto(`${site.gateway.url}/models/prices`);
  await page.getByRole("button", { name: "Set a price" }).click();
  await page.getByLabel("Model", { exact: true }).fill("film-1");
  await page.getByLabel("Each second, $").fill("0.04");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /film-1.*\$0.04 a second/ }).waitFor();
  await page.goto(`${site.gateway.url}/users`);
  await page.getByRole("row", { name: /^pro/ }).click();
  await page.getByLabel("Requests per minute, per key").fill("77");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /^pro.*77/ }).waitFor();
  await shot(page, "prices");
  expect(complaints).toEqual([]);
});

test("nodes: one is registered, dials in, shows its GPUs and deploys a model before the eyes", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/nodes?new=1`);
  await page.getByLabel("Name of the machine").fill("rack-3");
  await page.getByRole("dialog").getByRole("button", { name: "Register" }).click();
  const command = await page.getByRole("figure", { name: "Start the agent" }).locator("pre").textContent();
  const token = /AGENT_TOKEN=(\S+)/.exec(command ?? "")?.[1] ?? "";
  for (const _ of ["first", "second"]) await page.keyboard.press("Escape");
  await page.mouse.click(5, 400);
  await page.getByRole("dialog").getByRole("button", { name: "I have copied it" }).click();
  await page.getByText("Offline").first().waitFor();

  const node = await dialRaw(site.gateway, token);
  const gpu = { index: 0, name: "H200", memory_total_mb: 143_771, memory_used_mb: 71_000, utilization: 42 };
  await node.hello({ gpus: [gpu] });
  await page.getByText("Online").first().waitFor();
  await page.getByText("42%").waitFor();

  const estimate = {
    ...{ weights_mb: 4_800, cache_mb: 1_152, overhead_mb: 840, total_mb: 6_792 },
    ...{ context_tokens: 8_192, slots: 1 },
  };
  node.answers = { "agent.estimate": { estimate, room_mb: 72_771 } };
  await page.getByRole("button", { name: "Deploy a model" }).click();
  await pick(page, "Known model", "Qwen3 8B");
  await page.getByLabel("Quantisation").selectOption({ label: "Q4_K_M, 5.0 GB" });
  expect(await page.getByLabel("Model", { exact: true }).inputValue()).toBe("Qwen/Qwen3-8B-GGUF:Q4_K_M");
  await page.getByLabel("Context, tokens").fill("8192");
  const where = page.getByRole("region", { name: "Where it fits" });
  await where.getByText("fits: 6.6 of 71 GB").waitFor();
  await where.getByText("weights 4.7 GB, cache 1.1 GB for 1 × 8,192 tokens, overhead 0.8 GB").waitFor();
  expect(node.received.findLast(({ method }) => method === "agent.estimate")?.params).toEqual({
    ...{ model_id: "Qwen/Qwen3-8B-GGUF:Q4_K_M", context_tokens: 8_192 },
  });
  await shot(page, "node-deploy-form");
  await page.getByLabel("Context, tokens").fill("");
  await page.getByLabel("Model", { exact: true }).fill("org/tiny");
  expect(await page.getByLabel("Known model").inputValue()).toBe("another one, by its name");
  await page.getByRole("dialog").getByRole("button", { name: "Deploy" }).click();
  const ordered = async (modelId: string) => {
    const order = () =>
      node.received.find(({ method, params }) => method === "agent.deploy" && params?.model_id === modelId);
    await until(`${modelId} is ordered`, () => order() !== undefined);
    return order()!.params ?? {};
  };
  await page.getByRole("list", { name: "Deployments" }).waitFor();
  const { stream_id, model_id } = await ordered("org/tiny");
  const message = "1.0 GiB of 2.0 GiB, 100.0 MiB/s";
  node.notify("agent.progress", { stream_id, model_id, status: "downloading", progress: 40, message });
  await page.getByText("downloading, 40%, 104.9 MB/s, about 10 s left").waitFor();
  await shot(page, "node-deploying");
  node.notify("agent.progress", { stream_id, model_id, status: "ready", progress: 100, port: 20_000 });
  await page.getByRole("list", { name: "Deployments" }).getByText("ready").waitFor();

  await page.getByRole("button", { name: "Deploy a model" }).click();
  await page.getByLabel("Model", { exact: true }).fill("org/huge");
  await page.getByRole("dialog").getByRole("button", { name: "Deploy" }).click();
  const cancel = page.getByRole("button", { name: "Cancel the deployment of org/huge" });
  const huge = await ordered("org/huge");
  node.notify("agent.progress", { ...huge, status: "downloading", progress: 3 });
  await page.getByText("downloading, 3%").first().waitFor();
  await cancel.click();
  await page.getByRole("list", { name: "Deployments" }).getByText("stopped").waitFor();
  expect(node.received.findLast(({ method }) => method === "agent.stop")?.params).toMatchObject({
    model_id: "org/huge",
  });
  await shot(page, "nodes");

  await page.getByRole("button", { name: "Deploy a model" }).click();
  await page.getByLabel("Model", { exact: true }).fill("org/seldom");
  await page.getByLabel("Runs").selectOption("on_demand");
  await page.getByRole("dialog").getByRole("button", { name: "Deploy" }).click();
  const served = page.getByRole("region", { name: "Wherever there is room" });
  await served.getByText("on demand, until idle for 10 min").waitFor();
  await served.getByRole("button", { name: "Serve org/seldom no more" }).click();
  await served.waitFor({ state: "detached" });

  // One that fails says why, with what its engine last wrote, here and in the node's details; its log is there, too.
  await page.getByRole("button", { name: "Deploy a model" }).click();
  await page.getByLabel("Model", { exact: true }).fill("org/broken");
  await page.getByRole("dialog").getByRole("button", { name: "Deploy" }).click();
  const broken = await ordered("org/broken");
  const why = "the engine ended (code 1), after 1 restarts\nloading weights\nCUDA error: out of memory";
  const now = Math.floor(Date.now() / 60_000);
  node.answers = {
    "agent.log": { text: "loading weights\nCUDA error: out of memory\nthe end" },
    "agent.history": Array.from({ length: 60 }, (_, i) => ({
      minute: now - 59 + i,
      gpus: [{ index: 0, utilization: (i * 7) % 100, memory_used_mb: 40_000 + i * 500 }],
    })),
  };
  node.notify("agent.progress", { ...broken, status: "failed", progress: 90, message: why });
  await page.getByRole("list", { name: "Deployments" }).getByText("CUDA error: out of memory").waitFor();
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("dialog").getByText("CUDA error: out of memory").waitFor();
  await page.getByRole("img", { name: "Load of GPU 0 in the last hour, at most 99%" }).waitFor();
  await shot(page, "node-details");
  await page.getByRole("button", { name: "Log of org/broken" }).click();
  await page.getByLabel("Engine log").getByText("the end").waitFor();
  await shot(page, "node-log");
  for (const _ of ["the log", "the details"]) await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });

  await page.getByRole("button", { name: "Deploy a model" }).click();
  await page.getByLabel("Model", { exact: true }).fill("org/rare");
  await page.getByLabel("Runs").selectOption("on_demand");
  await shot(page, "node-on-demand");
  await page.getByRole("dialog").getByRole("button", { name: "Deploy" }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  expect(await (await fetch(`${site.gateway.url}/v1/models`)).text()).toContain("org/rare");
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("button", { name: "Drain" }).click();
  await page.getByRole("dialog").getByText("Drained").waitFor();
  await shot(page, "node-drained");
  node.socket.close();
  expect(complaints).toEqual([]);
});

test("people who are not administrators see no operator's pages", async () => {
  const { page } = await site.visitAs("somebody");
  expect(await page.getByRole("link", { name: "Models & backends" }).count()).toBe(0);
  await page.goto(`${site.gateway.url}/models`);
  await page.getByText("Page not found").waitFor();
});
