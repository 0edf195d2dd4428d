import { afterAll, beforeAll, expect, test } from "bun:test";
import { openSite, type Site } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite({ config: { publicUrl: "https://example.com/gateway/" } });
});
afterAll(() => site.stop());

test("the console works under a path: links, pages, the docs and a reload", async () => {
  const { page, complaints } = await site.visitAs("ada");
  const { url } = site.gateway;
  await page.goto(`${url}/gateway/`);
  await page.getByRole("link", { name: "Keys" }).first().click();
  await page.waitForURL(`${url}/gateway/keys`);
  await page.reload();
  await page.getByRole("heading", { level: 1 }).first().waitFor();
  await page.goto(`${url}/gateway/docs/pricing`);
  await page.getByRole("heading", { name: "Prices, tiers and video costs" }).waitFor();
  expect(new URL(page.url()).pathname).toBe("/gateway/docs/pricing");
  expect(complaints).toEqual([]);
});
