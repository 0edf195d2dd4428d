import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { openSite, type Site, shot } from "./support/site.ts";

let site: Site;
let key: string;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  const token = await site.gateway.signIn("owner");
  key = (await site.gateway.rpc<{ key: string }>("keys.create", { name: "program" }, token)).key;
  for (const ref of ["nightly", "nightly", "bot"]) await chat(ref);
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

async function chat(ref: string): Promise<void> {
  const answer = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-service-ref": ref },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "hi" }] }),
  });
  expect(answer.status).toBe(200);
}

test("usage: chart, groups, filters in the address, the request's sheet and CSV", async () => {
  const { page, complaints } = await site.signedInAs("owner");
  await page.goto(`${site.gateway.url}/usage?metric=tokens&by=ref`);
  await page.locator(".chart canvas").waitFor();
  expect(await page.locator(".chart-legend").textContent()).toContain("nightly");
  await shot(page, "usage");
  await page.getByRole("button", { name: "Table" }).click();
  const sums = page.getByRole("region", { name: "Sums by ref" });
  await sums.getByRole("row", { name: /nightly 2/ }).waitFor();
  expect(page.url()).toContain("view=table");

  await page.getByRole("button", { name: "7 days" }).click();
  expect(page.url()).toContain("days=7");
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV" }).click();
  const csv = await Bun.file(await (await saved).path()).text();
  expect(csv.split("\r\n")[0]).toStartWith("created_at,model,backend");
  expect(csv.match(/demo-chat/g)).toHaveLength(3);

  await page.getByRole("group", { name: "Measure" }).getByRole("button", { name: "Cached" }).click();
  await sums.getByRole("row", { name: /nightly 2 24 75%/ }).waitFor();
  await page.getByRole("button", { name: "Chart" }).click();
  await page
    .getByRole("figure", { name: "share of the prompts that came from a cache by day and ref" })
    .waitFor();

  await page.getByLabel("Reference").fill("nightly");
  await page.getByLabel("Reference").press("Enter");
  await page.waitForURL(/ref=nightly/);
  await page.locator(".figure", { hasText: "Requests" }).getByText("2", { exact: true }).waitFor();
  await page.getByLabel("Backend").selectOption("demo");
  await page.getByRole("main").getByRole("link", { name: "Requests" }).click();
  await page.waitForURL(/requests.*backend=demo.*ref=nightly/);
  await page.locator(".figure", { hasText: "Requests" }).getByText("2", { exact: true }).waitFor();
  await page
    .getByRole("region", { name: "Requests", exact: true })
    .getByRole("row", { name: /demo-chat/ })
    .first()
    .click();
  const sheet = page.getByRole("dialog");
  await sheet.getByText("(75% of the prompt)").waitFor();
  const id = new URL(page.url()).searchParams.get("open")!;
  await page.goto(`${site.gateway.url}/requests`);
  await page.getByLabel("Request id").fill(id);
  await page.getByLabel("Request id").press("Enter");
  await sheet.getByText("(75% of the prompt)").waitFor();
  await shot(page, "usage-request");
  expect(complaints).toEqual([]);
});

test("the bar on top shows the limit that is reached first, in its own unit, amber from 80 %", async () => {
  const { page, complaints } = await site.visitAs("owner");
  const token = await site.gateway.signIn("owner");
  const bar = page.getByRole("banner").locator(".spend");
  const meter = bar.getByRole("meter");
  const limits = { name: "free", monthly_usd_quota: 1, monthly_token_quota: 1_000_000, rpm: 1_000_000 };
  const limit = async (changes: Partial<Record<keyof typeof limits, unknown>>) => {
    await site.gateway.rpc("billing.tiers.set", { ...limits, ...changes }, token);
    await page.reload();
    await bar.waitFor();
  };
  const { usage } = await site.gateway.rpc("billing.plan", {}, token);
  expect(usage.tokens).toBeGreaterThan(10);

  await limit({ monthly_token_quota: Math.floor(usage.tokens / 0.8) });
  await bar.getByText(`${usage.tokens} of ${Math.floor(usage.tokens / 0.8)} tokens`).waitFor();
  expect(await meter.getAttribute("class")).toContain("tone-warn");
  expect(await meter.getAttribute("aria-label")).toMatch(/^Limit used: 8\d%$/);
  await page.getByText(/^Token quota: .* tokens used$/).waitFor();
  await shot(page, "limit-tokens");

  await limit({ monthly_token_quota: 2 * usage.tokens });
  await bar.getByText("50%", { exact: true }).waitFor();
  expect(await meter.getAttribute("class")).not.toContain("tone");
  await limit({ monthly_token_quota: usage.tokens });
  expect(await meter.getAttribute("class")).toContain("tone-bad");

  await limit({});
  for (let i = 0; i < 4; i++) await chat("bot");
  await limit({ rpm: 1 });
  await bar.getByText(/^\d+ of 1 requests\/min$/).waitFor();
  await limit({ monthly_token_quota: null });
  await bar.getByText("$0.00 of $1.00").waitFor();
  await limit({ monthly_usd_quota: null, monthly_token_quota: null });
  await bar.getByText("Unlimited").waitFor();
  expect(await meter.count()).toBe(0);
  await limit({ monthly_token_quota: 100_000, rpm: 10 });
  expect(complaints).toEqual([]);
});

test("groups: members, invitation, models, points and a ledger that adds up", async () => {
  const { page, complaints } = await site.signedInAs("owner");
  await site.gateway.signIn("colleague");
  await page.goto(`${site.gateway.url}/groups?new=1`);
  await page.getByLabel("Name").fill("Research");
  await page.getByRole("dialog").getByRole("button", { name: "Create group" }).click();
  await page.getByRole("heading", { name: "Research" }).waitFor();

  await page.getByRole("button", { name: "Add member" }).click();
  await page.getByLabel("Email").fill("colleague@example.com");
  await page.getByLabel("Cost multiplier").fill("1.5");
  await page.getByRole("dialog").getByRole("button", { name: "Add member" }).click();
  await page.getByRole("row", { name: /colleague@example.com.*× 1.5/ }).waitFor();
  await shot(page, "group-members");

  await page.getByRole("button", { name: "Invite" }).click();
  await page.getByRole("button", { name: "Create invitation" }).click();
  const link =
    (await page.getByRole("figure", { name: "Invitation link" }).locator("pre").textContent()) ?? "";
  await page.getByRole("dialog").getByRole("button", { name: "I have copied it" }).click();

  await page.getByRole("link", { name: "Models", exact: true }).click();
  await page.getByLabel("Model to add to Denied").fill("gpt-4o");
  await page.getByLabel("Model to add to Denied").press("Enter");
  await page.getByRole("button", { name: "Take gpt-4o off the list" }).waitFor();
  await page.getByText("no backend lists it").waitFor();
  const only = page.getByLabel("Only allowed models may be used");
  await only.click();
  await page.getByText("No model that can be called is on the list").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  expect(await only.isChecked()).toBe(false);
  await page.getByLabel("Model to add to Allowed").fill("demo-chat");
  await page.getByLabel("Model to add to Allowed").press("Enter");
  await page.getByRole("button", { name: "Take demo-chat off the list" }).waitFor();
  await only.click();
  await shot(page, "group-models");

  await page.getByRole("link", { name: "Credits & ledger" }).click();
  await page.getByRole("button", { name: "Issue points" }).click();
  await page.getByLabel("Points", { exact: true }).fill("5000");
  await page.getByRole("dialog").getByRole("button", { name: "Issue points" }).click();
  await page.getByRole("cell", { name: "5,000 pt" }).waitFor();
  await page.getByRole("button", { name: "Allocate to a member" }).click();
  await page.getByLabel("Member", { exact: true }).selectOption("colleague@example.com");
  await page.getByLabel("Points", { exact: true }).fill("800");
  await page.getByRole("dialog").getByRole("button", { name: "Allocate" }).click();
  await page.getByRole("cell", { name: "4,200 pt" }).waitFor();
  await page.getByRole("link", { name: "Settings", exact: true }).last().click();
  await page.getByLabel("Monthly refill, points").fill("4500");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("filled up to 4,500 pt each month").waitFor();
  await page.getByRole("link", { name: "Credits & ledger" }).click();
  await page.getByRole("cell", { name: "4,500 pt" }).waitFor();
  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText("3 entries recomputed").waitFor();
  await shot(page, "group-credits");
  expect(complaints).toEqual([]);

  const guest = await site.signedInAs("guest");
  await guest.page.goto(link);
  await guest.page.getByRole("button", { name: "Join" }).click();
  await guest.page.getByRole("heading", { name: "Research" }).waitFor();
  expect(await guest.page.getByRole("button", { name: "Add member" }).count()).toBe(0);
  // What is left is a member's to see.
  await guest.page.getByText("filled up to 4,500 pt each month").waitFor();
});

test("a member's wallet shows what was allocated", async () => {
  const { page } = await site.signedInAs("colleague");
  await page.goto(`${site.gateway.url}/wallet`);
  await page.getByRole("cell", { name: "+800" }).waitFor();
  await shot(page, "wallet");
});

test("what is owed stands on the wallet and the overview until points have paid it", async () => {
  const { page, complaints } = await site.visitAs("debtor");
  const { gateway } = site;
  const token = await gateway.signIn("debtor");
  const { id } = await gateway.rpc<{ id: string }>("auth.me", {}, token);
  const { ledger } = gateway.app.rooms;
  const wallet = { type: "user", id } as const;
  const topup = (points: number) =>
    ledger.transaction((tx) => ledger.topup(tx, wallet, { points, note: null, actor: id }));
  await topup(10);
  const request = {
    account: wallet,
    userId: id,
    requestId: crypto.randomUUID(),
    costNanoUsd: 500_000_000n,
    multiplierMicros: 1_000_000,
    atMs: Date.now(),
  };
  const drained = { load: async () => {}, begin() {}, pays: () => false };
  await ledger.transaction((tx) => ledger.settleBatch(tx, [request], { mayExist: false, quota: drained }));

  await page.goto(`${gateway.url}/`);
  await page.getByText("40 pt owed: nothing is served until they are paid").waitFor();
  await page.goto(`${gateway.url}/wallet`);
  await page.getByText("40 pt are owed for answers").waitFor();
  await page.getByRole("row", { name: /Debt.*-40/ }).waitFor();
  await shot(page, "wallet-debt");
  await topup(100);
  await page.reload();
  await page.getByRole("row", { name: /Debt paid.*-40/ }).waitFor();
  expect(await page.getByText("are owed for answers").count()).toBe(0);
  expect(complaints).toEqual([]);
});

test("a revoked key is refused at once", async () => {
  const { page } = await site.signedInAs("owner");
  await page.goto(`${site.gateway.url}/keys`);
  await page.getByRole("row", { name: /program/ }).click();
  await page.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("button", { name: "Revoke now" }).click();
  await page.getByRole("row", { name: /program.*Revoked/ }).waitFor();
  const answer = await fetch(`${site.gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}` },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "hi" }] }),
  });
  expect(answer.status).toBe(401);
});
