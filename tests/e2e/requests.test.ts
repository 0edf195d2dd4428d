import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
let token: string;
let key: string;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  token = await site.gateway.signIn("operator");
  key = await newKey("ci-pipeline");
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

async function newKey(name: string): Promise<string> {
  const made = await site.gateway.rpc<{ key: string }>("keys.create", { name }, token);
  return made.key;
}

const chat = async (body: Record<string, unknown> = {}, by = key) => {
  const response = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${by}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "hi" }], ...body }),
  });
  await response.text();
  return response.headers.get("x-request-id") ?? "";
};

test("an operator finds out why a request failed: histogram, filter in the address, detail, CSV", async () => {
  for (let i = 0; i < 4; i++) await chat({ stream: i % 2 === 0 });
  await chat({ model: "absent" });
  site.upstream.failing = true;
  const failedId = await chat();
  site.upstream.failing = false;

  const { page, complaints } = await site.visitAs("operator");
  await page.getByRole("link", { name: "Requests", exact: true }).click();
  await page.getByRole("heading", { name: "Requests", exact: true }).waitFor();
  await page.getByRole("row", { name: /502 upstream failed demo-chat demo ci-pipeline/ }).waitFor();
  await page.getByRole("row", { name: /404 no such model absent/ }).waitFor();
  await page.getByRole("figure", { name: /Requests by outcome/ }).waitFor();
  await shot(page, "requests");
  expect(await axeFindings(page)).toEqual([]);

  await page.getByLabel("Outcome", { exact: true }).selectOption("failed");
  await page.getByRole("row", { name: /404 no such model/ }).waitFor({ state: "detached" });
  expect(page.url()).toContain("outcome=failed");
  await page.getByRole("row", { name: /502 upstream failed/ }).click();
  const sheet = page.getByRole("dialog");
  await sheet
    .getByText(/no worker is available/)
    .first()
    .waitFor();
  await sheet.getByRole("list", { name: /^Where .* went$/ }).waitFor();
  await sheet.getByRole("button", { name: failedId }).waitFor();
  expect(page.url()).toContain(`open=${failedId}`);
  await shot(page, "requests-detail");
  expect(await axeFindings(page)).toEqual([]);
  await sheet.getByRole("link", { name: "Try it in the playground" }).click();
  await page.waitForURL(/\/playground\?.*model=demo-chat/);
  await page.goBack();
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();

  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV" }).click();
  const csv = readFileSync(await (await downloading).path(), "utf8");
  expect(csv.split("\r\n")[0]).toStartWith("at,id,surface,outcome,status,code");
  expect(csv).toContain(failedId);
  expect(csv.trim().split("\r\n")).toHaveLength(2);
  expect(complaints).toEqual([]);
});

test("an operator has a key's prompts captured: its owner sees that, and a request is read and replayed", async () => {
  const { page, complaints } = await site.signedInAs("operator");
  const before = await chat();
  await page.goto(`${site.gateway.url}/requests?open=${before}`);
  const sheet = page.getByRole("dialog", { name: "Request", exact: true });
  await sheet.getByText("The prompt and the answer were not captured.").waitFor();
  await sheet.getByRole("button", { name: "Capture prompts of this key" }).click();
  await page
    .getByRole("dialog", { name: /^Capture prompts of/ })
    .getByRole("button", { name: "Capture" })
    .click();
  await sheet.getByRole("button", { name: "Stop capturing prompts" }).waitFor();

  const messages = [
    { role: "system", content: "Be kind" },
    { role: "user", content: "first" },
    { role: "assistant", content: "the earlier answer" },
    { role: "user", content: "the captured question" },
  ];
  const id = await chat({ messages, temperature: 0.25, stream: true });
  await page.goto(`${site.gateway.url}/requests?open=${id}`);
  await sheet.getByText("You said: the captured question").waitFor();
  await shot(page, "requests-captured");
  expect(await axeFindings(page)).toEqual([]);
  await sheet.getByRole("button", { name: "Replay in the playground" }).click();
  await page.getByText("the earlier answer").first().waitFor();
  expect(await page.getByLabel("Your message").inputValue()).toBe("the captured question");
  expect(await page.getByLabel("System prompt").inputValue()).toBe("Be kind");
  expect(await page.getByLabel("Temperature").inputValue()).toBe("0.25");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("You said: the captured question").first().waitFor();
  expect(site.upstream.requests.at(-1)?.messages.map(({ role }) => role)).toEqual(
    messages.map(({ role }) => role),
  );

  await page.goto(`${site.gateway.url}/keys`);
  await page.getByRole("row", { name: /ci-pipeline prompts captured/ }).click();
  await page.getByText("An administrator has the prompts and answers of this key captured until").waitFor();
  await shot(page, "key-captured");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "Stop capturing prompts" }).click();
  await page
    .getByRole("dialog", { name: /^Stop capturing/ })
    .getByRole("button", { name: "Stop" })
    .click();
  await page.getByText("prompts captured").waitFor({ state: "detached" });
  await page.goto(`${site.gateway.url}/requests?open=${id}`);
  await sheet.getByText("The prompt and the answer were not captured.").waitFor();
  expect(complaints).toEqual([]);
});

test("live: a request appears when it ends, without a reload", async () => {
  const own = await newKey("live-key");
  await chat({}, own);
  const { page, complaints } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/requests`);
  const watching = page.waitForRequest((request) => request.url().includes("/api/rpc/events"));
  await page.getByRole("button", { name: "Live" }).click();
  await watching;
  await page.getByText("Requests appear here as they end.").waitFor();
  const id = await chat({ model: "gone-live" }, own);
  const row = page.getByRole("row", { name: /404 no such model gone-live live-key/ });
  await row.waitFor();
  await row.click();
  const sheet = page.getByRole("dialog");
  await sheet.getByRole("button", { name: id }).waitFor();
  await sheet.getByRole("button", { name: "Close" }).click();
  // What was shown stays, and so does what comes between two times.
  await page.getByRole("button", { name: "Stop live" }).click();
  await page.getByText("Requests appear here as they end.").waitFor({ state: "detached" });
  await row.waitFor();
  await chat({ model: "between-two" }, own);
  await page.getByRole("button", { name: "Live" }).click();
  await page.getByRole("row", { name: /404 no such model between-two/ }).waitFor();
  await row.waitFor();
  expect(complaints).toEqual([]);
});

test("older ones follow the newest without a gap when the list was loaded again", async () => {
  // Each may make few requests a minute.
  const keys = await Promise.all([..."abcdefgh"].map(newKey));
  const ask = async (from: number, to: number) => {
    for (let i = from; i < to; i++) await chat({ model: `row-${i}` }, keys[i % keys.length]);
  };
  await ask(0, 58);
  const { page, complaints } = await site.signedInAs("operator");
  await page.goto(`${site.gateway.url}/requests`);
  await page.getByRole("row", { name: /row-57/ }).waitFor();
  await page.getByRole("button", { name: "Show older ones" }).click();
  await page.getByRole("row", { name: /row-0 / }).waitFor();
  await ask(58, 63);
  await page.getByRole("button", { name: "Live" }).click();
  await page.getByRole("row", { name: /row-62/ }).waitFor();
  const names = page.getByRole("region", { name: "Requests", exact: true }).getByText(/^row-\d+$/);
  const shown = (await names.allInnerTexts()).map((name) => Number(name.slice(4)));
  expect(shown).toEqual(Array.from(shown, (_, i) => 62 - i));
  expect(complaints).toEqual([]);
});

test("who asked, by each of what they asked with; a row narrows the page to it", async () => {
  await newKey("other");
  const { page, complaints } = await site.visitAs("operator");
  for (const [by, row, filter] of [
    ["user", /operator@example.com/, /user=/],
    ["key", /ci-pipeline/, /key=/],
    ["project", /default/, /project=default/],
    ["model", /demo-chat/, /model=demo-chat/],
    ["backend", /demo/, /backend=demo/],
  ] as const) {
    await page.goto(`${site.gateway.url}/requests`);
    await page.getByLabel("Break down by").selectOption(`by ${by}`);
    await page
      .getByRole("region", { name: `Requests by ${by}` })
      .getByRole("row", { name: row })
      .first()
      .click();
    await page.waitForURL(filter);
  }
  for (const by of ["group", "reference"]) {
    await page.getByLabel("Break down by").selectOption(`by ${by}`);
    await page
      .getByRole("region", { name: `Requests by ${by}` })
      .getByRole("row", { name: /none/ })
      .waitFor();
  }
  expect(complaints).toEqual([]);
});

for (const width of [390, 1280])
  test(`filters and rows fit ${width} px, however long the name of a key, a model or a backend`, async () => {
    const long = await newKey(`${width} ${"k".repeat(60)}`);
    const backend = { name: "a-backend-with-a-name", type: "external", url: site.upstream.url };
    if (width === 390) await site.addBackend({ ...backend, models: ["vendor/a-model-with-a-long-name"] });
    for (const model of ["vendor/a-model-with-a-long-name", "absent-model-with-a-long-name"])
      await chat({ model }, long);
    const { page } = await site.signedInAs("operator", { width });
    await page.goto(`${site.gateway.url}/requests`);
    await page.getByLabel("Key", { exact: true }).waitFor();
    await page
      .getByRole("row", { name: /absent-model/ })
      .first()
      .waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  });

test("someone else sees their own requests only, and is told when there are none", async () => {
  const { page, complaints } = await site.signedInAs("somebody");
  await page.goto(`${site.gateway.url}/requests`);
  await page.getByText("No requests in this period").waitFor();
  expect(await page.getByLabel("Whose").count()).toBe(0);
  expect(complaints).toEqual([]);
});
