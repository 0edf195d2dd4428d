import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  await site.gateway.signIn("owner");
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

const call = (key: string, model = "demo-chat") =>
  fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }] }),
  });

test("a key gets limits when it is made, shows what it spent and why it was refused, and is edited", async () => {
  const { page, complaints } = await site.signedInAs("owner");
  await page.goto(`${site.gateway.url}/keys?new=1`);
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("intern");
  await dialog.getByText("Limits (optional)").click();
  await dialog.getByLabel("Monthly budget (USD)").fill("5");
  await dialog.getByLabel("Requests a minute").fill("60");
  await dialog.getByLabel("Allowed models").fill("something-else");
  await dialog.getByLabel("Expires").fill("2031-01-31T12:00");
  await shot(page, "key-limits-create");
  expect(await axeFindings(page)).toEqual([]);
  await dialog.getByRole("button", { name: "Create key" }).click();
  const secret = (await page
    .getByText(/^service-[0-9a-f-]{36}$/)
    .first()
    .textContent())!;
  expect((await call(secret)).status).toBe(403);

  await page.goto(`${site.gateway.url}/keys`);
  await page.getByRole("row", { name: /intern.*\$0\.00 of \$5\.00.*Active/ }).click();
  const sheet = page.getByRole("dialog", { name: "intern", exact: true });
  await sheet.getByText(/may not use the model demo-chat/).waitFor();
  await shot(page, "key-limits-refused");
  await sheet.getByRole("button", { name: "Edit limits" }).click();
  const edit = page.getByRole("dialog", { name: "Edit intern" });
  expect(await edit.getByLabel("Expires").inputValue()).toBe("2031-01-31T12:00");
  await edit.getByLabel("Allowed models").fill("demo-chat, demo-fast");
  await edit.getByLabel("Tokens a minute").fill("50000");
  await edit.getByLabel("Requests a minute").fill("");
  await shot(page, "key-limits-edit");
  await edit.getByRole("button", { name: "Save" }).click();
  await sheet.getByText("demo-chat, demo-fast").waitFor();
  await sheet.getByText("50.0k tokens").waitFor();
  expect((await call(secret)).status).toBe(200);
  await page.reload();
  await sheet.getByText("just now").first().waitFor();

  await sheet.getByRole("button", { name: "Edit limits" }).click();
  await edit.getByLabel("Total budget (USD)").fill("0");
  await edit.getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /intern.*Budget spent/ }).waitFor();
  await shot(page, "key-limits-sheet");
  expect(complaints).toEqual([]);
});

test("its pages fit a phone and a dark room", async () => {
  for (const look of [{ width: 390 }, { theme: "dark" }] as const) {
    const { page } = await site.signedInAs("owner", look);
    const name = Object.keys(look).join("-");
    await page.goto(`${site.gateway.url}/keys`);
    await page.getByRole("row", { name: /intern/ }).waitFor();
    await shot(page, `keys-${name}`);
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    await page.getByRole("row", { name: /intern/ }).click();
    await page.getByRole("button", { name: "Edit limits" }).click();
    await page.getByRole("dialog", { name: "Edit intern" }).waitFor();
    await shot(page, `key-edit-${name}`);
    expect(await axeFindings(page, "theme" in look)).toEqual([]);
  }
});
