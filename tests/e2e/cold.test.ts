import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { openSite, SESSION_KEY, type Site, type Visit } from "./support/site.ts";

const OWNER = "owner";
const WORDS = "is anyone there?";
const MANY = 1_000;
const NOTE_PX_MAX = 120;

/** A gateway and the ids of the models that can be called there. */
interface Stage {
  site: Site;
  token: string;
  models: readonly string[];
}

interface ColdPage {
  path: string;
  /** Makes what the page shows; the id takes the place of `:id` in the path. */
  make?(stage: Stage): Promise<string>;
  heading: string;
  /** What it shows is another with other models; the rest is opened once. */
  showsModels?: true;
  /** Does what one comes for; where that cannot be done, the page says why. */
  act(page: Page, stage: Stage): Promise<void>;
}

const made = async ({ site, token }: Stage, method: string, params: unknown): Promise<string> =>
  (await site.gateway.rpc<{ id: string }>(method, params, token)).id;
const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).first().click();
const says = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
async function saysNoModel(page: Page, text = "No model can be called yet."): Promise<void> {
  const note = page.getByRole("note").filter({ hasText: text });
  await note.getByText("Register a backend, or check why the registered ones do not answer.").waitFor();
  expect((await note.boundingBox())!.height).toBeLessThan(NOTE_PX_MAX);
}

/** One tab for all pages, since a profile for each would take minutes: only the session outlives a page in it. */
async function emptyTab(site: Site): Promise<Visit> {
  const tab = await site.signedInAs(OWNER);
  await tab.context.addInitScript((key) => {
    const session = localStorage.getItem(key)!;
    localStorage.clear();
    sessionStorage.clear();
    localStorage.setItem(key, session);
  }, SESSION_KEY);
  return tab;
}

/** Types and sends, as someone does who has chosen nothing. */
async function send(page: Page, stage: Stage): Promise<void> {
  const button = page.getByRole("button", { name: "Send", exact: true });
  await page.getByLabel("Your message").fill(WORDS);
  if (stage.models.length === 0) {
    await saysNoModel(page);
    expect(await button.isDisabled()).toBe(true);
    return;
  }
  await button.click();
  await says(page, `You said: ${WORDS}`);
  await page.getByLabel("Model", { exact: true }).click();
  await page.getByRole("option", { name: stage.models[0], exact: true }).waitFor();
  expect(stage.site.upstream.requests.at(-1)?.model).toBe(stage.models[0]!);
}

const PAGES: readonly ColdPage[] = [
  {
    path: "/",
    heading: "Overview",
    showsModels: true,
    async act(page, { models }) {
      const rail = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
      const listed = await rail.evaluateAll((links) => links.map((a) => (a as HTMLAnchorElement).pathname));
      expect(PAGES.map(({ path }) => path)).toEqual(expect.arrayContaining(listed));
      const steps = page.getByRole("region", { name: "Getting started" });
      await steps.getByRole("link", { name: models.length ? "Create a key" : "Register a backend" }).click();
      await page.getByRole("dialog").waitFor();
    },
  },
  { path: "/playground", heading: "Playground", showsModels: true, act: send },
  {
    path: "/catalogue",
    heading: "Catalogue",
    showsModels: true,
    async act(page, { models }) {
      if (models.length === 0) return saysNoModel(page);
      if (models.length > 100) await page.getByLabel("Search models").fill(models[0]!);
      await page.getByRole("row", { name: new RegExp(`${models[0]}.*Serving`) }).waitFor();
      await page.getByRole("link", { name: "Try" }).first().click();
      await page.getByRole("heading", { name: "Playground" }).waitFor();
    },
  },
  {
    path: "/usage",
    heading: "Usage",
    async act(page) {
      await press(page, "7 days");
      await page.getByRole("button", { name: "7 days", pressed: true }).waitFor();
      await says(page, /Nothing in this range|Tokens in/);
    },
  },
  {
    path: "/requests",
    heading: "Requests",
    async act(page) {
      await press(page, "Live");
      await page.getByRole("button", { name: "Stop live" }).waitFor();
    },
  },
  { path: "/batches", heading: "Batches", act: (page) => says(page, "No batches yet") },
  {
    path: "/keys",
    heading: "Keys",
    async act(page) {
      await press(page, "Create key");
      await page.getByLabel("Name").fill("laptop");
      await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
      await page.getByRole("heading", { name: "First call with laptop" }).waitFor();
    },
  },
  {
    path: "/keys/:id/first-call",
    make: (stage) => made(stage, "keys.create", { name: "cold" }),
    heading: "First call with cold",
    showsModels: true,
    async act(page, { models }) {
      await says(page, "The secret was shown when the key was created.");
      if (models.length === 0) return saysNoModel(page);
      const command = page.getByRole("figure", { name: "The call" }).locator("pre");
      await command.filter({ hasText: `"model": "${models[0]}"` }).waitFor();
    },
  },
  {
    path: "/groups",
    heading: "Groups",
    async act(page) {
      await press(page, "Create group");
      await page.getByLabel("Name").fill("Lab");
      await page.getByRole("dialog").getByRole("button", { name: "Create group" }).click();
      await page.getByRole("heading", { name: "Lab" }).waitFor();
    },
  },
  {
    path: "/groups/:id",
    make: (stage) => made(stage, "group.create", { name: "Cold group" }),
    heading: "Cold group",
    showsModels: true,
    async act(page) {
      await press(page, "Invite");
      await page.getByRole("dialog").waitFor();
    },
  },
  {
    path: "/wallet",
    heading: "Wallet",
    async act(page) {
      await says(page, "No entries yet");
      await says(page, "Points that a group allocates to you");
    },
  },
  { path: "/conversations", heading: "Conversations", showsModels: true, act: send },
  { path: "/conversations/new", heading: "New conversation", showsModels: true, act: send },
  {
    path: "/conversations/:id",
    make: (stage) => made(stage, "conversations.create", { title: "Cold talk" }),
    heading: "Cold talk",
    showsModels: true,
    act: send,
  },
  {
    path: "/memory",
    heading: "Memory",
    act: (page) => says(page, "The operator turns memory on by setting SERVICE_MEMORY_URL."),
  },
  {
    path: "/video",
    heading: "Video",
    showsModels: true,
    async act(page, { models }) {
      await press(page, "New video");
      const dialog = page.getByRole("dialog");
      await saysNoModel(page, "No video model is connected yet.");
      await dialog.getByLabel("Model", { exact: true }).fill(models[0] ?? "film");
      await dialog.getByLabel("Prompt").fill("A lighthouse in a storm");
      await dialog.getByRole("button", { name: "Start" }).click();
      await dialog
        .getByRole("alert")
        .filter({ hasText: models[0] ?? "film" })
        .waitFor();
    },
  },
  {
    path: "/voice",
    heading: "Voice",
    showsModels: true,
    async act(page, { models }) {
      await saysNoModel(page, "No realtime model is connected yet.");
      await page.getByLabel("Model", { exact: true }).fill(models[0] ?? "voice");
      await press(page, "Start talking");
      await page
        .getByRole("alert")
        .filter({ hasText: models[0] ?? "voice" })
        .waitFor();
    },
  },
  {
    path: "/models",
    heading: "Models & backends",
    showsModels: true,
    async act(page, { models }) {
      await says(page, models.length ? "Serving" : "No backend is registered");
      await press(page, "Register backend");
      await page
        .getByRole("dialog")
        .getByRole("button", { name: /^Another server/ })
        .click();
      await page.getByRole("dialog").getByLabel("Address").waitFor();
    },
  },
  {
    path: "/models?open=static",
    heading: "Models & backends",
    showsModels: true,
    async act(page, { models }) {
      if (models.length === 0) return;
      const sheet = page.getByRole("dialog", { name: "static" });
      await sheet.getByText(models[0]!).first().waitFor();
      expect(await sheet.getByRole("link", { name: "more models" }).count()).toBe(models.length > 50 ? 1 : 0);
    },
  },
  {
    path: "/models/list",
    heading: "Models & backends",
    showsModels: true,
    async act(page, { models }) {
      if (models.length === 0) return saysNoModel(page);
      if (models.length > 100) await page.getByLabel("Search models").fill(models.at(-1)!);
      await page.locator(`button[aria-label="Set price of ${models.at(-1)}"]`).click();
      await page.getByRole("dialog").waitFor();
    },
  },
  {
    path: "/models/routes",
    heading: "Models & backends",
    showsModels: true,
    async act(page) {
      await press(page, "Add a model route");
      await page.getByRole("dialog").getByLabel("Name that programs send").waitFor();
    },
  },
  {
    path: "/models/providers",
    heading: "Models & backends",
    act: (page) => says(page, "OpenRouter"),
  },
  {
    path: "/models/prices",
    heading: "Models & backends",
    async act(page) {
      await press(page, "Set a price");
      await page.getByRole("dialog").getByLabel("Each second, $").waitFor();
    },
  },
  {
    path: "/nodes",
    heading: "Nodes",
    async act(page) {
      await press(page, "Register node");
      await page.getByLabel("Name of the machine").fill("rack");
      await page.getByRole("dialog").getByRole("button", { name: "Register" }).click();
      await page.getByRole("figure", { name: "Start the agent" }).waitFor();
    },
  },
  {
    path: "/users",
    heading: "Users",
    async act(page) {
      await press(page, "Invite");
      await press(page, "Create link");
      await page.getByRole("figure", { name: "One-time link" }).waitFor();
    },
  },
  {
    path: "/users/:id",
    make: async (stage) => (await stage.site.gateway.rpc<{ id: string }>("auth.me", {}, stage.token)).id,
    heading: OWNER,
    async act(page) {
      await says(page, "Your password is under Settings");
    },
  },
  {
    path: "/audit",
    heading: "Audit log",
    async act(page) {
      await page.getByLabel("About").selectOption("keys.");
      await page
        .getByRole("row", { name: /made the key/ })
        .first()
        .click();
      await page.getByRole("dialog", { name: /made the key/ }).waitFor();
    },
  },
  {
    path: "/docs",
    heading: "Quick start",
    async act(page) {
      await page.getByRole("link", { name: "Concepts", exact: true }).first().click();
      await page.getByRole("heading", { name: "Concepts" }).waitFor();
    },
  },
  {
    path: "/settings",
    heading: "Settings",
    async act(page) {
      await press(page, "Dark");
      expect(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme)).toBe("dark");
    },
  },
  {
    path: "/cli-sign-in",
    heading: "Sign in the command line",
    act: (page) => says(page, "This address is incomplete."),
  },
  {
    path: "/join",
    heading: "Join a group",
    async act(page) {
      await page.getByLabel("Invitation").fill("group-invite-unknown");
      await press(page, "Join");
      await page.getByRole("alert").waitFor();
    },
  },
];

const STAGES: readonly { name: string; models: readonly string[] }[] = [
  { name: "no model", models: [] },
  { name: "one model", models: ["only-model"] },
  {
    name: `${MANY} models`,
    models: Array.from({ length: MANY }, (_, i) => `model-${String(i).padStart(4, "0")}`),
  },
];

for (const { name, models } of STAGES)
  describe(`opened cold, with ${name}`, () => {
    let stage: Stage;
    let tab: Visit;
    beforeAll(async () => {
      const site = await openSite();
      stage = { site, models, token: await site.gateway.signIn(OWNER) };
      site.upstream.models = [];
      if (models.length > 0)
        await site.addBackend({ name: "static", type: "external", url: site.upstream.url, models });
      tab = await emptyTab(site);
    });
    afterAll(() => stage.site.stop());

    for (const { path, make, heading, act } of PAGES.filter(
      ({ showsModels }) => showsModels || models.length === 0,
    ))
      test(path, async () => {
        const address = make ? path.replace(":id", await make(stage)) : path;
        const { page, complaints } = tab;
        complaints.length = 0;
        await page.goto(`${stage.site.gateway.url}${address}`);
        await page.getByRole("heading", { level: 1, name: heading }).waitFor();
        await act(page, stage);
        expect(complaints).toEqual([]);
      });
  });
