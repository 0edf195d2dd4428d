import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import type { Page } from "playwright-core";
import { axeFindings, openSite, pick, type Site, shot } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite({ config: { registrationOpen: null } });
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

/** Signs the administrator in and makes a key: what follows is the page that waits for its first call. */
async function firstCallPage(keyName: string): Promise<Page> {
  const { page } = await site.visit();
  await page.goto(site.gateway.url);
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto(`${site.gateway.url}/keys?new=1`);
  await page.getByLabel("Name").fill(keyName);
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  return page;
}

test("from nothing to the first answer, without leaving the console", async () => {
  const { page, complaints } = await site.visit();
  await page.goto(site.gateway.url);
  await page.getByRole("heading", { name: "Set up your gateway" }).waitFor();
  await page.getByText("administers the service and is unlimited").waitFor();
  await shot(page, "first-run");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByLabel("Name").fill("Ada Lovelace");
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the administrator" }).click();

  const steps = page.getByRole("region", { name: "Getting started" });
  await steps.getByText("Register a backend").waitFor();
  const bar = page.getByRole("banner");
  await bar.getByText("Unlimited").waitFor();
  expect(await bar.textContent()).not.toContain("$1.00");
  await shot(page, "first-run-checklist");
  await site.withBackend();
  await steps.getByText("Connect a model (done)").waitFor();

  await steps.getByRole("link", { name: "Create a key" }).click();
  await page.getByLabel("Name").fill("laptop");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  await page.getByRole("heading", { name: "First call with laptop" }).waitFor();
  await page.getByText("Waiting for the first request").waitFor();
  const secret = (await page.getByRole("figure", { name: "The key" }).locator("pre").textContent()) ?? "";
  expect(secret).toMatch(/^service-[0-9a-f-]{36}$/);
  await pick(page, "Model", "demo-chat");
  await shot(page, "first-call-waiting");

  // The snippet itself is run, as a person would run it in a terminal.
  const command = (await page.getByRole("figure", { name: "The call" }).locator("pre").textContent()) ?? "";
  const ran = Bun.spawn(["bash", "-c", command.replace("curl ", "curl -sS ")], { stdout: "pipe" });
  expect(await new Response(ran.stdout).text()).toContain("You said");
  await page.getByText("The first request arrived.").waitFor();
  await shot(page, "first-call-green");

  await page.goto(site.gateway.url);
  await page.getByRole("heading", { name: "Your latest requests" }).waitFor();
  await page.getByRole("cell", { name: "demo-chat" }).first().waitFor();
  expect(await steps.count()).toBe(0);
  expect(complaints).toEqual([]);
});

test("the first-call page names the mistake", async () => {
  const page = await firstCallPage("wrong");
  const models = page.getByLabel("Model", { exact: true });
  await models.click();
  await page.getByRole("option", { name: "demo-chat" }).waitFor();
  const offered = await page.getByRole("option").allTextContents();
  expect(offered.every((id) => id.startsWith("demo-"))).toBe(true);
  // As from a pasted link, but without the reload that would forget the key.
  await page.evaluate(() => {
    history.replaceState(null, "", "?model=nobody-has-this");
    dispatchEvent(new PopStateEvent("popstate"));
  });
  await page.getByRole("button", { name: "Send it from here" }).click();
  await page.getByText("No backend serves this model.").waitFor();
  await shot(page, "first-call-mistake");
});

test("a call from outside is seen by itself: its mistake first, then its answer", async () => {
  const page = await firstCallPage("outside");
  await page.getByText("Waiting for the first request").waitFor();
  const key = /service-[0-9a-f-]{36}/.exec(await page.locator("main").innerText())![0];
  const call = (body: object, bearer = key) =>
    fetch(`${site.gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const messages = [{ role: "user", content: "hello" }];
  expect((await call({ model: "demo-chat", messages }, key.slice(0, -2))).status).toBe(401);
  await page.getByText("The key was rejected.").waitFor();
  expect((await call({ model: "nobody-has-this", messages })).status).toBe(404);
  await page.getByText("No backend serves this model.").waitFor();
  expect((await call({ model: "demo-chat", messages })).status).toBe(200);
  await page.getByText("The first request arrived.").waitFor();
});
