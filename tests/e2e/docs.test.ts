import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite();
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

test("guides are apart by their readers, and every page has an outline", async () => {
  const { page, complaints } = await site.signedInAs("ada");
  await page.goto(`${site.gateway.url}/docs`);
  const contents = page.getByRole("navigation", { name: "Documentation" });
  await contents.getByRole("link", { name: "User's guide" }).waitFor();
  for (const reader of ["Users", "Operators", "Developers", "Reference", "Decisions"])
    await contents.getByText(reader, { exact: true }).first().waitFor();
  await contents.getByRole("link", { name: "Operator's guide" }).click();
  const outline = page.getByRole("navigation", { name: "On this page" });
  await outline.getByRole("link", { name: "What to watch" }).click();
  expect(new URL(page.url()).hash).toBe("#what-to-watch");
  await shot(page, "docs-outline");
  expect(await axeFindings(page)).toEqual([]);
  expect(complaints).toEqual([]);
});

test("the search finds words on every page, and leads to the place", async () => {
  const { page } = await site.signedInAs("ada");
  await page.goto(`${site.gateway.url}/docs`);
  await page.getByLabel("Search the documentation").fill("email verified provider");
  await page
    .getByRole("link", { name: /^Single sign-on with OpenID Connect: / })
    .first()
    .waitFor();
  await shot(page, "docs-search");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("link", { name: /Who is who/ }).click();
  await page.waitForURL("**/docs/oidc#who-is-who");
  await page.getByRole("heading", { name: "Who is who" }).waitFor();
  await page.getByLabel("Search the documentation").fill("zzz no such words");
  await page.getByText("Nothing has all of these words").waitFor();
});

test("examples have the reader's address and a key of theirs", async () => {
  const { page } = await site.signedInAs("ada", { width: 390, theme: "dark" });
  await page.goto(`${site.gateway.url}/docs/clients`);
  const { host } = new URL(site.gateway.url);
  await page.getByText(`http://${host}/v1`).first().waitFor();
  expect(await page.getByText("127.0.0.1:8080").count()).toBe(0);
  await page.getByRole("button", { name: "Make a key for them" }).click();
  await page.getByText("have your key").waitFor();
  const code = await page.locator("pre").filter({ hasText: "apiKey" }).first().textContent();
  const key = /service-[0-9a-f-]{36}/.exec(code!)?.[0];
  const answer = await fetch(`${site.gateway.url}/v1/embeddings`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: "{}",
  });
  expect(answer.status).toBe(400);
  await shot(page, "dark-390-docs-key");
  expect(await axeFindings(page)).toEqual([]);
});
