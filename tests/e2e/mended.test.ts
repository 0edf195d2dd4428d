import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import type { Page } from "playwright-core";
import { openSite, type Site, shot } from "./support/site.ts";

/** Dollars for a million tokens: uneven, so that figures that are cut short would not add up. */
const PRICES = { prices: [{ match: "demo-chat", input: 3137.3, output: 7771.9 }] };
const dataDir = mkdtempSync(join(tmpdir(), "mended-test-"));
const pricingFile = join(dataDir, "prices.json");
writeFileSync(pricingFile, JSON.stringify(PRICES));

let site: Site;
let key: string;
let other: string;
beforeAll(async () => {
  site = await openSite({ config: { pricingFile } });
  await site.withBackend();
  const token = await site.gateway.signIn("owner");
  const make = (name: string, project: string) =>
    site.gateway.rpc<{ key: string }>("keys.create", { name, project }, token);
  ({ key } = await make("program", "shared"));
  ({ key: other } = await make("neighbour", "shared"));
  for (const [bearer, ref] of [
    [key, "nightly"],
    [key, "bot"],
    [other, "nightly"],
  ] as const)
    await chat(bearer, "demo-chat", ref);
});
afterEach(() => site.closeVisits());
afterAll(async () => {
  await site.stop();
  rmSync(dataDir, { recursive: true });
});

async function chat(bearer: string, model: string, ref: string): Promise<Response> {
  const answer = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json", "x-service-ref": ref },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }] }),
  });
  await answer.text();
  return answer;
}

const dollars = (text: string) => Math.round(Number(text.replace(/[$,]/g, "")) * 1e6);

/** Points at the last bar of the chart, a little beside its middle. */
async function pointAtToday(page: Page): Promise<{ x: number; width: number }> {
  await page.locator(".chart canvas").waitFor();
  await page.locator(".chart").scrollIntoViewIfNeeded();
  const box = (await page.locator(".chart .u-over").boundingBox())!;
  await page.mouse.move(box.x + box.width - 4, box.y + 40);
  return box;
}

for (const width of [1280, 390]) {
  test(`the chart's tip can be read, adds up and stands on its bar (${width} px)`, async () => {
    const { page } = await site.signedInAs("owner", { width });
    await page.goto(`${site.gateway.url}/usage?by=ref&days=7`);
    const { x, width: plotWidth } = await pointAtToday(page);
    const tip = page.locator(".chart-tip");
    await tip.waitFor();
    const [total, ...parts] = await tip.locator("td").allTextContents();
    expect(parts).toHaveLength(2);
    expect(parts.reduce((sum, part) => sum + dollars(part), 0)).toBe(dollars(total!));
    expect(new Set([total, ...parts].map((text) => text!.split(".")[1]!.length)).size).toBe(1);
    expect(await tip.locator("tbody th").allTextContents()).toEqual(["nightly", "bot"]);
    for (const cell of await tip.locator("th, td").all()) {
      const clipped = await cell.evaluate((element) => element.scrollWidth - element.clientWidth);
      expect(clipped).toBeLessThanOrEqual(0);
    }
    const line = (await page.locator(".u-cursor-x").boundingBox())!;
    expect(Math.abs(line.x + line.width - (x + (plotWidth * 6.5) / 7))).toBeLessThan(2);
    await shot(page, `${width}-chart-tip`);
  });

  test(`a row's health is on the screen (${width} px)`, async () => {
    const { page } = await site.signedInAs("owner", { width });
    await page.goto(`${site.gateway.url}/models`);
    const health = page.getByRole("row", { name: /demo/ }).getByText("Serving");
    await health.waitFor();
    const inSight = async (box: Awaited<ReturnType<typeof health.boundingBox>>) =>
      box !== null && box.x >= 0 && box.x + box.width <= width;
    expect(await inSight(await health.boundingBox())).toBe(true);
    await shot(page, `${width}-backends`);
  });
}

test("a key's usage is the key's, and the month's sum is the same everywhere", async () => {
  const { page } = await site.visitAs("owner");
  const cost = page
    .locator(".figure", { has: page.getByText("Cost", { exact: true }) })
    .locator(".value", { hasText: "$" });
  const spend = page.locator(".figure", { hasText: "Spend this month" });
  await page.reload();
  const spent = await spend.locator(".value", { hasText: "$" }).textContent();
  expect(dollars(spent!)).toBeGreaterThan(0);
  await spend.getByRole("link", { name: "Spend this month" }).click();
  await page.getByRole("button", { name: "This month", pressed: true }).waitFor();
  expect(await cost.textContent()).toBe(spent);
  await page.locator(".spend", { hasText: spent! }).waitFor();

  await page.goto(`${site.gateway.url}/keys`);
  await page.getByRole("row", { name: /program/ }).click();
  await page.getByRole("dialog").getByRole("link", { name: "Usage" }).click();
  await page
    .locator(".figure", { has: page.getByText("Requests", { exact: true }) })
    .getByText("2", { exact: true })
    .waitFor();
  expect(await page.getByLabel("Key", { exact: true }).inputValue()).toBe(key.slice(8, 16));
});

test("failures name what is known of them, in words", async () => {
  expect((await chat(key, "absent", "x")).status).toBe(404);
  expect((await chat(key, "m".repeat(300), "x")).status).toBe(400);
  const { page } = await site.visitAs("owner");
  const table = page.getByRole("region", { name: "Latest failures" });
  await table.getByRole("row", { name: /404 no such model unknown/ }).waitFor();
  await table.getByRole("row", { name: /400 invalid field unknown/ }).waitFor();
  expect(await table.getByText("missing_fields").count()).toBe(0);
  expect(await table.getByText("none", { exact: true }).count()).toBe(0);
});

test("an unknown group leads back to the groups", async () => {
  const { page } = await site.signedInAs("owner");
  for (const id of ["nothing", crypto.randomUUID()]) {
    await page.goto(`${site.gateway.url}/groups/${id}`);
    await page.getByText("Group not found").waitFor();
    await shot(page, "group-unknown");
    await page.getByRole("link", { name: "All groups" }).click();
    await page.getByRole("heading", { name: "Groups", exact: true }).waitFor();
  }
});

test("a group of one loses, a group of two lose", async () => {
  const { page } = await site.signedInAs("owner");
  const token = await site.gateway.signIn("owner");
  const { id } = await site.gateway.rpc<{ id: string }>("group.create", { name: "Alone" }, token);
  const consequence = async (words: string) => {
    await page.goto(`${site.gateway.url}/groups/${id}/settings`);
    await page.getByRole("button", { name: "Delete group" }).click();
    await page.getByRole("dialog").getByText(words).waitFor();
  };
  await consequence("1 member loses the pool");
  await site.gateway.signIn("second");
  await site.gateway.rpc("group.members.add", { group_id: id, email: "second@example.com" }, token);
  await consequence("2 members lose the pool");
});

test("a name that is too long is named, and nothing of it is cut off", async () => {
  const { page } = await site.signedInAs("owner");
  await page.goto(`${site.gateway.url}/keys?new=1`);
  const name = page.getByRole("dialog").getByLabel("Name");
  await name.fill("n".repeat(100));
  await page.getByText("At most 80 characters; this has 100").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  expect(await page.getByRole("dialog").count()).toBe(1);
  expect((await name.inputValue()).length).toBe(100);
  await shot(page, "name-too-long");
});

test("a form stays when a selection ends beside it, and asks before it drops what was typed", async () => {
  const { page } = await site.signedInAs("owner");
  await page.goto(`${site.gateway.url}/keys?new=1`);
  const form = page.getByRole("dialog", { name: "Create a key" });
  const question = page.getByRole("dialog", { name: "Discard what you entered?" });
  await form.getByLabel("Name").fill("work in progress");
  const box = (await form.getByLabel("Name").boundingBox())!;
  await page.mouse.move(box.x + 20, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(5, box.y + 10);
  await page.mouse.up();
  await page.mouse.click(5, 400);
  await page.keyboard.press("Escape");
  await question.waitFor();
  await page.keyboard.press("Escape");
  await question.waitFor({ state: "detached" });
  expect(await form.getByLabel("Name").inputValue()).toBe("work in progress");
  await form.getByRole("button", { name: "Close" }).click();
  await question.getByRole("button", { name: "Discard" }).click();
  await form.waitFor({ state: "detached" });
});

for (const width of [1280, 390])
  test(`the button that copies never lies on the code (${width} px)`, async () => {
    const { page } = await site.signedInAs("owner", { width });
    await page.goto(`${site.gateway.url}/keys?new=1`);
    await page.getByLabel("Name").fill(`copied ${width}`);
    await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
    for (const name of ["The key", "The call"]) {
      const figure = page.getByRole("figure", { name });
      const text = (await figure.locator("pre").boundingBox())!;
      const button = (await figure.getByRole("button", { name: "Copy" }).boundingBox())!;
      const apart = button.x >= text.x + text.width || button.y >= text.y + text.height;
      expect([name, apart]).toEqual([name, true]);
    }
    await shot(page, `${width}-code`);
  });

test("what matters in a table is on a phone's screen: balances, sessions, the providers' actions", async () => {
  const token = await site.gateway.signIn("owner");
  const { rpc } = site.gateway;
  const group = await rpc("group.create", { name: "Payers" }, token);
  await rpc("group.credits.topup", { group_id: group.id, points: 100 }, token);
  const given = { group_id: group.id, user_id: "owner@example.com", points: 40 };
  await rpc("group.credits.allocate", given, token);
  const { page } = await site.signedInAs("owner", { width: 390 });
  for (const [path, label] of [
    ["/wallet", "Ledger"],
    [`/groups/${group.id}/credits`, "Ledger"],
    ["/settings", "Sessions"],
    ["/models/providers", "Providers"],
  ] as const) {
    await page.goto(site.gateway.url + path);
    const table = page.getByRole("region", { name: label }).getByRole("table");
    await table.waitFor();
    const overhang = await table.evaluate(
      (element) => element.scrollWidth - element.parentElement!.clientWidth,
    );
    expect([path, label, overhang <= 0]).toEqual([path, label, true]);
  }
});

test("that the service is away is said once, and what was there stays", async () => {
  const { page, context } = await site.visitAs("owner");
  await page.getByRole("region", { name: "Latest failures" }).waitFor();
  await context.setOffline(true);
  await page.getByText("The service cannot be reached").waitFor();
  const polls = new Set<string>();
  page.on("requestfailed", (request) => {
    polls.add(/"method":"([^"]+)"/.exec(request.postData() ?? "")?.[1] ?? "");
  });
  while (!["system.status", "system.activity", "agents.list"].every((method) => polls.has(method)))
    await page.waitForEvent("requestfailed");
  expect(await page.getByText("cannot be reached").count()).toBe(1);
  expect(
    await page.getByRole("region", { name: "Latest failures" }).getByRole("row").count(),
  ).toBeGreaterThan(1);
  await shot(page, "offline-once");
  await context.setOffline(false);
  await page.getByText("The service cannot be reached").waitFor({ state: "detached" });
});

test("an expired session says so and leads back; signing out needs no reason, in any tab", async () => {
  const { page, context } = await site.signedInAs("sleeper");
  await page.goto(`${site.gateway.url}/keys`);
  await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
  await page.evaluate(() => {
    const stored = JSON.parse(localStorage.getItem("model-gateway.session")!);
    const spoiled = { ...stored, accessToken: "x", refreshToken: "x", expiresAtMs: 0 };
    localStorage.setItem("model-gateway.session", JSON.stringify(spoiled));
  });
  await page.reload();
  await page.getByText("Your session has ended.").waitFor();
  await shot(page, "session-expired");
  await page.getByLabel("Email").fill("sleeper@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
  const second = await context.newPage();
  await second.goto(`${site.gateway.url}/wallet`);
  await second.getByRole("heading", { name: "Wallet", exact: true }).waitFor();
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  for (const tab of [page, second]) {
    await tab.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await tab.getByText("Your session has ended.").count()).toBe(0);
  }
});

test("while it loads, a page has the shape that it will have", async () => {
  const { page } = await site.signedInAs("owner");
  const held: (() => void)[] = [];
  let isHolding = true;
  await page.route("**/api/rpc", async (route) => {
    if (isHolding && /keys\.list|group\.list/.test(route.request().postData() ?? ""))
      await new Promise<void>((resolve) => held.push(resolve));
    await route.continue().catch(() => {});
  });
  const headOf = () => page.locator("main thead").first().innerText();
  const topOf = async () => (await page.locator("main thead").first().boundingBox())!.y;
  for (const path of ["/keys", "/groups"]) {
    isHolding = true;
    await page.goto(`${site.gateway.url}${path}`);
    await page.locator("main .skeleton").first().waitFor();
    const before = { head: await headOf(), top: await topOf() };
    await shot(page, `outline-${path.slice(1)}`);
    isHolding = false;
    for (const release of held.splice(0)) release();
    await page.locator("main .skeleton").first().waitFor({ state: "detached" });
    expect([path, await headOf()]).toEqual([path, before.head]);
    expect([path, Math.abs((await topOf()) - before.top) < 60]).toEqual([path, true]);
  }
});

test("the skip link is the first stop of the keyboard and leads to the content", async () => {
  const { page } = await site.visitAs("owner");
  await page.keyboard.press("Tab");
  const link = page.getByRole("link", { name: "Skip to the content" });
  expect(await link.evaluate((element) => element === document.activeElement)).toBe(true);
  await shot(page, "skip-link");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("MAIN");
});

test("the palette finds documents, backends, nodes and conversations, changes the theme and signs out", async () => {
  const { page } = await site.visitAs("owner");
  const token = await site.gateway.signIn("owner");
  await site.gateway.rpc("agents.register", { machine_name: "rack-9", version: "1" }, token);
  await site.gateway.rpc("conversations.create", { title: "Plans for May" }, token);
  await page.reload();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const find = async (words: string, kind: string) => {
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: /^Find/ }).fill(words);
    await page
      .getByRole("option", { name: new RegExp(`${kind}$`) })
      .first()
      .click();
  };
  await find("quick start", "documentation");
  await page.waitForURL("**/docs/quick-start");
  await find("demo", "backend");
  await page.waitForURL("**/models?open=demo");
  await page.locator("dialog.sheet[open]").waitFor();
  await find("rack-9", "node");
  await page.getByRole("dialog", { name: "rack-9" }).waitFor();
  await page.keyboard.press("Escape");
  await find("plans", "conversation");
  await page.getByRole("heading", { name: "Plans for May" }).waitFor();
  await find("dark theme", "action");
  expect(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme)).toBe("dark");
  await page.keyboard.press("Control+k");
  await shot(page, "palette-all");
  await page.keyboard.press("Escape");
  await find("sign out", "action");
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
});
