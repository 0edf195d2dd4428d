import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { openSite, type Site } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  const token = await site.gateway.signIn("operator");
  for (const name of ["first", "second"]) await site.gateway.rpc("keys.create", { name }, token);
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

test("Enter opens a row, Back closes it, and the focus returns to where it was", async () => {
  const { page, complaints } = await site.visitAs("operator");
  await page.getByRole("link", { name: "Keys" }).first().click();
  const row = page.getByRole("row", { name: /first/ });
  await row.focus();
  await page.keyboard.press("Enter");
  const sheet = page.getByRole("dialog", { name: "first" });
  await sheet.waitFor();
  expect(new URL(page.url()).searchParams.has("open")).toBe(true);
  await page.goBack();
  await sheet.waitFor({ state: "detached" });
  expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe("/keys");
  expect(await row.evaluate((element) => element === document.activeElement)).toBe(true);

  await page.keyboard.press("Enter");
  await sheet.waitFor();
  await page.keyboard.press("Escape");
  await sheet.waitFor({ state: "detached" });
  await page.goBack();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  expect(complaints).toEqual([]);
});

test("addresses that name nothing say so", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  for (const path of ["/keys/%zz/x", "/models/nothing", "/nothing"]) {
    await page.goto(`${site.gateway.url}${path}`);
    await page.getByText("Page not found").waitFor();
  }
  expect(complaints).toEqual([]);
});

test("filters that were typed wrong are as if they were not there", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  for (const query of ["days=abc&by=bogus&metric=zzz", "since=garbage&until=2026-13-45"]) {
    await page.goto(`${site.gateway.url}/usage?${query}`);
    await page.getByRole("button", { name: "This month", pressed: true }).waitFor();
    await page.getByText("Nothing in this range").or(page.locator(".figures")).first().waitFor();
  }
  expect(complaints).toEqual([]);
});

test("what could not be loaded comes by itself when the service is back, a page's own file on request", async () => {
  const { page, context } = await site.visitAs("operator");
  await page.getByRole("link", { name: "Keys" }).first().click();
  await page.getByRole("cell", { name: "first", exact: true }).waitFor();
  await context.setOffline(true);
  await page.getByRole("link", { name: "Wallet" }).first().click();
  await page.getByText("This page could not be loaded.").waitFor();
  await page.getByRole("link", { name: "Keys" }).first().click();
  await page.getByText("The service cannot be reached").waitFor();
  await context.setOffline(false);
  await page.getByText("The service cannot be reached").waitFor({ state: "detached" });
  await page.getByRole("cell", { name: "first", exact: true }).waitFor();
  await page.getByRole("link", { name: "Wallet" }).first().click();
  // Pointing at the link may have fetched the file already.
  const wallet = page.getByRole("heading", { name: "Wallet" });
  const again = page.getByRole("button", { name: "Try again" });
  await wallet.or(again).first().waitFor();
  if (await again.isVisible()) await again.click();
  await wallet.waitFor();
});

test("an answer from before a change does not hide the change", async () => {
  const { page } = await site.visitAs("operator");
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let lists = 0;
  await page.route("**/api/rpc", async (route) => {
    const isList = route.request().postData()?.includes('"keys.list"') ?? false;
    const response = await route.fetch();
    if (isList && lists++ === 0) await held;
    await route.fulfill({ response });
  });
  // The overview would poll the list by itself.
  await page.goto(`${site.gateway.url}/keys?new=1`);
  await page.getByLabel("Name").fill("newest");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  await page.getByRole("heading", { name: "First call with newest" }).waitFor();
  release();
  await page.getByRole("link", { name: "All keys" }).click();
  await page.getByRole("cell", { name: "newest", exact: true }).waitFor();
});

test("a turn that failed can be sent again", async () => {
  const { page } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/playground?model=demo-chat`);
  site.upstream.failing = true;
  await page.getByLabel("Your message").fill("once more");
  await page.keyboard.press("Enter");
  const again = page.getByRole("button", { name: "Send again" });
  await again.waitFor();
  site.upstream.failing = false;
  await again.click();
  await page.getByText("You said: once more").waitFor();
  expect(await page.locator(".user-words").count()).toBe(1);
});

test("the documentation shows its pictures, and a link leads to its heading", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/docs/performance`);
  const picture = page.locator("article img").first();
  await picture.waitFor();
  await page.waitForFunction(() => (document.querySelector("article img") as HTMLImageElement).complete);
  expect(await picture.evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBeGreaterThan(0);
  expect(await page.locator("article").innerText()).not.toContain("<!--");
  await page.goto(`${site.gateway.url}/docs/operators-guide#when-redis-or-postgres-is-away`);
  await page.locator("#when-redis-or-postgres-is-away").waitFor();
  await page.waitForFunction(() => scrollY > 0);
  expect(complaints).toEqual([]);
});
