import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { Page } from "playwright-core";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
beforeAll(async () => {
  // Nothing but a start: no account, no backend, no admin token.
  site = await openSite({ config: { registrationOpen: null, adminToken: null } });
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

/** What a person does, counted. */
class Hands {
  clicks = 0;
  forms = 0;
  constructor(readonly page: Page) {}
  async click(
    name: string | RegExp,
    role: "button" | "link" | "row" = "button",
    within: Pick<Page, "getByRole"> = this.page,
  ) {
    this.clicks++;
    await within.getByRole(role, { name }).last().click();
  }
  async submit(fields: Record<string, string>, button: string) {
    this.forms++;
    for (const [label, value] of Object.entries(fields)) await this.page.getByLabel(label).fill(value);
    await this.click(button);
  }
}

const linkIn = async (page: Page) =>
  (await page.getByRole("figure", { name: "One-time link" }).locator("pre").textContent()) ?? "";

test("from an empty machine to a colleague's first answer: 9 clicks and 3 forms, then 2 clicks and 1 form", async () => {
  const { page, complaints } = await site.visit();
  const admin = new Hands(page);
  await page.goto(site.gateway.url);
  await admin.submit(
    { Name: "Ada Lovelace", Email: "ada@example.com", Password: PASSWORD },
    "Create the administrator",
  );
  await admin.click("Register a backend", "link");
  await admin.click(/^Mistral AI/);
  expect(await page.getByLabel("Address").inputValue()).toBe("https://api.mistral.ai/v1");
  await shot(page, "register-provider");
  // The machine has no way to the provider: what speaks like it is at another address, with the provider's form.
  await admin.submit({ "API key": site.upstream.key, Address: `${site.upstream.url}/cloud/v1` }, "Register");
  await page.getByRole("row", { name: /mistral.*Serving/ }).waitFor();
  await admin.click("Playground", "link");
  await page.getByLabel("Your message").fill("hello");
  await admin.click("Send");
  await page.getByText("You said: hello").first().waitFor();
  expect([admin.clicks, admin.forms]).toEqual([6, 2]);
  await admin.click("Users", "link");
  await admin.click("Invite");
  await admin.submit({}, "Create link");
  const link = await linkIn(page);
  await shot(page, "invite-link");
  expect([admin.clicks, admin.forms]).toEqual([9, 3]);

  const theirs = await site.visit();
  const colleague = new Hands(theirs.page);
  await theirs.page.goto(link);
  await theirs.page.getByText("Ada Lovelace invites you to the model gateway").waitFor();
  await shot(theirs.page, "welcome");
  expect(await axeFindings(theirs.page)).toEqual([]);
  await colleague.submit(
    { Name: "Grace Hopper", Email: "grace@example.com", Password: PASSWORD },
    "Create account",
  );
  await theirs.page.getByLabel("Your message").fill("hello there");
  await colleague.click("Send");
  await theirs.page.getByText("You said: hello there").first().waitFor();
  await shot(theirs.page, "colleague-first-answer");
  expect([colleague.clicks, colleague.forms]).toEqual([2, 1]);

  // The link is used up.
  const late = await site.visit();
  await late.page.goto(link);
  await late.page.getByText("was used before").waitFor();
  await shot(late.page, "welcome-used");
  expect([...complaints, ...theirs.complaints]).toEqual([]);
});

test("an administrator finds, creates, promotes, resets and disables people", async () => {
  const { page } = await site.visit();
  await page.goto(site.gateway.url);
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto(`${site.gateway.url}/users`);
  await page.getByRole("row", { name: /Grace Hopper/ }).waitFor();
  await page.getByRole("button", { name: "Create user" }).click();
  await page.getByLabel("Email", { exact: true }).fill("alan@example.com");
  await page.getByLabel("Name", { exact: true }).fill("Alan Turing");
  await page.getByRole("dialog").getByRole("button", { name: "Create user" }).click();
  const link = await linkIn(page);
  await page.getByRole("button", { name: "I have copied it" }).click();
  await page.getByRole("row", { name: /choose a password.*alan@example.com/ }).waitFor();
  await shot(page, "users");
  expect(await axeFindings(page)).toEqual([]);

  const theirs = await site.visit();
  await theirs.page.goto(link);
  await theirs.page.getByText("Your account is").waitFor();
  await theirs.page.getByLabel("Password").fill(PASSWORD);
  await theirs.page.getByRole("button", { name: "Set password" }).click();
  await theirs.page.getByRole("heading", { name: "Playground" }).waitFor();

  const people = page.getByRole("region", { name: "Users" }).locator("tbody tr td:first-child");
  // A table is sorted in a transition: the click is answered before its rows have moved.
  const listsInOrder = (...names: string[]) =>
    until(`the table lists ${names}`, async () => String(await people.allTextContents()) === String(names));
  await listsInOrder("Alan Turing", "Grace Hopper", "Ada Lovelace");
  await page.getByRole("button", { name: "Name", exact: true }).click();
  await listsInOrder("Ada Lovelace", "Alan Turing", "Grace Hopper");
  await page.getByRole("button", { name: "Name", exact: true }).click();
  await listsInOrder("Grace Hopper", "Alan Turing", "Ada Lovelace");
  await page.getByLabel("Search by name or email").fill("turing");
  await page.getByRole("row", { name: /Grace Hopper/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /Alan Turing/ }).click();
  await page.getByRole("heading", { name: "Alan Turing" }).waitFor();
  const confirm = (name: string) => page.getByRole("dialog").getByRole("button", { name }).click();
  const tier = page.getByLabel("Tier");
  await tier.selectOption("pro");
  await page.getByRole("dialog", { name: "Set the tier of Alan Turing to pro?" }).waitFor();
  await confirm("Cancel");
  expect(await tier.inputValue()).toBe("free");
  await tier.selectOption("pro");
  await confirm("Set tier");
  await page.getByText("Tier set to pro").waitFor();
  await page.getByRole("button", { name: "Make administrator" }).click();
  await confirm("Make administrator");
  await page.getByRole("button", { name: "Remove administrator rights" }).waitFor();

  const token = await site.gateway.signIn("alan");
  await site.gateway.rpc("keys.create", { name: "machine" }, token);
  await page.reload();
  await page.getByRole("row", { name: /machine/ }).click();
  await page.getByRole("button", { name: "Edit limits" }).click();
  await page.getByLabel("Requests a minute").fill("7");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The limits of machine hold from now on").waitFor();
  expect(await site.gateway.rpc("keys.list", {}, token)).toMatchObject([{ requests_per_minute: 7 }]);
  await page.getByRole("button", { name: "Revoke" }).click();
  await confirm("Revoke now");
  await page.getByRole("row", { name: /machine.*Revoked/ }).waitFor();
  await page.keyboard.press("Escape");
  await shot(page, "user");
  expect(await axeFindings(page)).toEqual([]);

  await page.getByRole("button", { name: "Disable" }).click();
  await confirm("Disable");
  await page.getByText("Disabled").waitFor();
  await theirs.page.goto(`${site.gateway.url}/keys`);
  await theirs.page.getByRole("heading", { name: "Sign in" }).waitFor();

  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("button", { name: "Reset password" }).click();
  await confirm("Reset password");
  expect(await linkIn(page)).toContain("/welcome#token=link-");
});

test("who spent most last week, and on what: 3 clicks; a colleague gets limits: 4 clicks", async () => {
  const { page } = await site.visitAs("ada");
  const boss = new Hands(page);
  const top = page.locator("section", { has: page.getByRole("heading", { name: "Top people this month" }) });
  await boss.click("All", "link", top);
  await boss.click("7 days");
  await boss.click("grace@example.com", "link", page.getByRole("region", { name: "Sums by user" }));
  expect(boss.clicks).toBe(3);
  await page.getByRole("heading", { name: "Grace Hopper" }).waitFor();
  await page.getByRole("region", { name: "Sums by model" }).getByRole("row").nth(1).waitFor();
  for (const width of [1280, 390])
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize({ width, height: 860 });
      await page.emulateMedia({ colorScheme });
      await shot(page, `${colorScheme}-${width}-person`);
    }
  await page.getByRole("link", { name: "Requests", exact: true }).last().click();
  await page.getByLabel("User").waitFor();

  await page.setViewportSize({ width: 1280, height: 860 });
  await page.goto(site.gateway.url);
  const limiter = new Hands(page);
  await limiter.click("Users", "link");
  await limiter.click(/grace@example.com/, "row");
  await limiter.click("Give them limits of their own");
  await page.getByLabel("USD a month").fill("2");
  await limiter.click("Save");
  await page.getByText("$2.00", { exact: false }).first().waitFor();
  expect(limiter.clicks).toBe(4);
});

test("by keyboard alone: a key is made, and a model answers", async () => {
  const { page } = await site.visitAs("ada");
  await page.mouse.move(0, 0);
  const press = async (...keys: string[]) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  const goTo = async (words: string) => {
    await press("Control+k");
    await page.getByRole("combobox", { name: /^Find/ }).waitFor();
    await page.keyboard.type(words);
    await press("Enter");
  };
  await goTo("create key");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("by keyboard");
  await press("Enter");
  await page.getByRole("heading", { name: "First call with by keyboard" }).waitFor();
  await goTo("playground");
  const message = page.getByLabel("Your message");
  await message.waitFor();
  while (!(await message.evaluate((element) => element === document.activeElement))) await press("Tab");
  await page.keyboard.type("typed only");
  await press("Enter");
  await page.getByText("You said: typed only").first().waitFor();
});

test("everyone changes their name and their password, sees their sessions and signs out of them", async () => {
  const account = { email: "grace@example.com", password: PASSWORD };
  const { page } = await site.visit();
  await page.goto(`${site.gateway.url}/settings`);
  await page.getByLabel("Email").fill(account.email);
  await page.getByLabel("Password").fill(account.password);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("row", { name: /Chrome on Linux.*This one/ }).waitFor();
  await page.getByRole("button", { name: "Change name" }).click();
  await page.getByLabel("Name", { exact: true }).fill("Grace B. Hopper");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Grace B. Hopper", { exact: true }).waitFor();
  const other = await site.gateway.rpc<{ access_token: string }>("auth.login", account);
  await page.reload();
  await page.getByText("Grace B. Hopper", { exact: true }).waitFor();
  await page.getByRole("row", { name: /Bun/ }).waitFor();
  await shot(page, "settings-sessions");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: /Sign out of Bun/ }).click();
  await page.getByRole("row", { name: /Bun/ }).waitFor({ state: "detached" });
  expect((await site.gateway.call("auth.me", {}, other.access_token)).error).toBeDefined();
  await page.getByLabel("Current password").fill(account.password);
  await page.getByLabel("New password").fill("a better password");
  const hidden = page.getByLabel("New password");
  expect(await hidden.getAttribute("type")).toBe("password");
  await page.getByRole("button", { name: "Show what is typed" }).last().click();
  expect(await hidden.getAttribute("type")).toBe("text");
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByText("Password changed").waitFor();
  const changed = await site.gateway.call("auth.login", { ...account, password: "a better password" });
  expect(changed.result).toBeDefined();
});

test("settings are changed in the console, those of the environment are shown as such, and alerts are tried", async () => {
  const { page } = await site.signedInAs("ada");
  await page.goto(`${site.gateway.url}/settings`);
  // Test services are started with this variable.
  const registration = page.getByLabel("Who may register");
  expect(await registration.isDisabled()).toBe(true);
  await page.getByText("Set by SERVICE_REGISTRATION_OPEN in the environment of the service").waitFor();
  await page.getByLabel("Requests per minute, per key").fill("0");
  const save = page.getByRole("button", { name: "Save" });
  await save.click();
  await page.getByRole("alert").filter({ hasText: "Requests per minute, per key" }).waitFor();
  await page.getByLabel("Requests per minute, per key").fill("120");
  await save.click();
  await page.getByText("Saved; in force now").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await page.getByRole("button", { name: "Send a test alert" }).click();
  await page.getByText(/Nobody is told: set SERVICE_ALERT_WEBHOOK_URL/).waitFor();
  expect(await axeFindings(page)).toEqual([]);
}, 30_000);

test("a group's invitation shows who invites to what, and the newcomer is in the group", async () => {
  const token = await site.gateway.signIn("ada");
  const group = await site.gateway.rpc("group.create", { name: "Analysts" }, token);
  const invitation = await site.gateway.rpc("group.invite.create", { group_id: group.id }, token);
  const { page } = await site.visit({ width: 390, theme: "dark" });
  await page.goto(`${site.gateway.url}/join?token=${invitation.token}`);
  await page.getByRole("heading", { name: "Join Analysts" }).waitFor();
  await page.getByText("Ada Lovelace invites you to the group Analysts").waitFor();
  await shot(page, "dark-390-join");
  await page.getByLabel("Email").fill("katherine@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByRole("heading", { name: "Playground" }).waitFor();
  await page.goto(`${site.gateway.url}/groups/${group.id}`);
  await page.getByRole("heading", { name: "Analysts" }).waitFor();
});

test("a member's invitation asks people who have no account for one, and lets in those who have", async () => {
  const { signUp } = site.gateway.app.rooms.accounts.options;
  signUp.registrationOpen = true;
  const member = await site.gateway.signIn("dorothy");
  await site.gateway.signIn("mary");
  signUp.registrationOpen = null;
  const group = await site.gateway.rpc("group.create", { name: "Computers" }, member);
  const invitation = await site.gateway.rpc("group.invite.create", { group_id: group.id }, member);
  const { page } = await site.visit({ width: 390 });
  await page.goto(`${site.gateway.url}/join#token=${invitation.token}`);
  await page.getByText("This invitation is for people who have an account here").waitFor();
  expect(await page.getByRole("button", { name: "Create account" }).count()).toBe(0);
  await shot(page, "390-join-members");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "I have an account: sign in" }).click();
  await page.getByLabel("Email").fill("mary@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Join", exact: true }).click();
  await page.getByRole("heading", { name: "Computers" }).waitFor();
});
