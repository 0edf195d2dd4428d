import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

const LONG = "someone.with.a.rather.long.name";
let site: Site;
beforeAll(async () => {
  site = await openSite();
  const operator = await site.gateway.signIn("operator");
  const ada = await site.gateway.signIn("ada");
  const long = await site.gateway.signIn(LONG);
  await site.gateway.rpc(
    "auth.password.set",
    { current_password: PASSWORD, new_password: `${PASSWORD}!` },
    long,
  );
  await site.gateway.rpc("keys.create", { name: "laptop", monthly_budget_usd: 5 }, ada);
  const { id } = await site.gateway.rpc("auth.me", {}, ada);
  await site.gateway.rpc("users.update", { user_id: id, tier: "pro" }, operator);
  for (let i = 0; i < 55; i++)
    await site.gateway.rpc("routes.set", { name: `route-${i}`, targets: [{ model: "m" }] }, operator);
  await site.gateway.call("auth.login", { email: "ada@example.com", password: "not the password" });
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

test("an administrator sees who did what, filters it, reads one entry and goes back in time", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/audit?about=auth.`);
  await page.getByRole("row", { name: /anonymous.*ada@example.com could not sign in/ }).waitFor();
  await page.goto(`${site.gateway.url}/audit`);
  await page
    .getByRole("row", { name: /operator@example.com.*saved the model route route-54.*127.0.0.1/ })
    .waitFor();
  await shot(page, "audit");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "Older" }).click();
  await page
    .getByRole("row", { name: /operator@example.com set the tier of ada@example.com to pro/ })
    .click();
  await page.getByRole("dialog").getByText("pro (was free)").waitFor();
  await page.keyboard.press("Escape");
  await page.getByLabel("Search by email or user id").fill("ada@");
  await page.getByRole("row", { name: /ada@example.com.*made the key laptop/ }).click();
  const sheet = page.getByRole("dialog", { name: /made the key laptop/ });
  await sheet.getByText("Monthly budget").waitFor();
  await shot(page, "audit-entry");
  await page.keyboard.press("Escape");
  await page.getByLabel("About").selectOption({ label: "Users" });
  await page.getByText("No entry matches").waitFor();
  expect(page.url()).toContain("about=users.");
  expect(complaints).toEqual([]);
});

test("fits a phone and a dark room, and is not for others", async () => {
  for (const look of [{ width: 390 }, { theme: "dark" }] as const) {
    const { page } = await site.signedInAs("operator", look);
    await page.goto(`${site.gateway.url}/audit?q=${LONG}`);
    await page.getByRole("row", { name: new RegExp(`${LONG}.*changed their password`) }).waitFor();
    await shot(page, `audit-${Object.keys(look)[0]}`);
    expect(await axeFindings(page, "theme" in look)).toEqual([]);
    const tooWide = () =>
      [...document.querySelectorAll("main *")]
        .filter((element) => element.getBoundingClientRect().right > innerWidth)
        .map(({ tagName, className }) => `${tagName} ${className}`);
    expect(await page.evaluate(tooWide)).toEqual([]);
  }
  const { page } = await site.visitAs("ada");
  expect(await page.getByRole("link", { name: "Audit log" }).count()).toBe(0);
});
