import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { oneTimeLink } from "@model-gateway/client";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import { startProvider, type TestProvider } from "@model-gateway/testing/oidc-provider.ts";
import { freePort } from "@model-gateway/testing/services.ts";
import type { Page } from "playwright-core";
import { openShell } from "../../packages/cli/tests/support.ts";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
let provider: TestProvider;
beforeAll(async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  provider = await startProvider(url);
  site = await openSite({ config: { ...provider.settings(url), oidcLabel: "Sign in with Example" } });
  await site.gateway.signIn("root");
  provider.people.set("ada", { email: "ada@example.org", email_verified: true, name: "Ada Lovelace" });
});
afterEach(() => site.closeVisits());
afterAll(async () => {
  await site.stop();
  provider.stop();
});

/** The provider's own page, where any password is right. */
async function signInThere(page: Page, { issuer }: TestProvider, login: string): Promise<void> {
  await page.waitForURL(`${issuer}/**`);
  await page.locator("input[name=login]").fill(login);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
}

test("one button, the provider's form, and back on the page that was asked for", async () => {
  const { page } = await site.visit();
  await page.goto(`${site.gateway.url}/usage?by=model`);
  await page.getByRole("button", { name: "Sign in with Example" }).waitFor();
  await shot(page, "sign-in-provider");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "Sign in with Example" }).click();
  await signInThere(page, provider, "ada");
  await page.getByRole("heading", { name: "Usage", level: 1 }).waitFor();
  expect(page.url()).toBe(`${site.gateway.url}/usage?by=model`);
  await page.goto(`${site.gateway.url}/settings`);
  await page.getByText("ada@example.org").first().waitFor();
  await page.getByRole("row", { name: /ada@example.org.*Unlink/ }).waitFor();
  await page.getByRole("row", { name: /Chrome on Linux.*This one/ }).waitFor();
  await shot(page, "settings-single-sign-on");
  expect(await axeFindings(page)).toEqual([]);

  await page.getByRole("button", { name: /Unlink/ }).click();
  await page.getByText("only way into your account").waitFor();
});

test("who has an account with a password links it", async () => {
  provider.people.set("grace", { email: "grace@example.com", email_verified: true });
  await site.gateway.signIn("grace");
  const { page } = await site.visit({ theme: "dark", width: 390 });
  await page.goto(site.gateway.url);
  await page.getByRole("button", { name: "Sign in with Example" }).click();
  await signInThere(page, provider, "grace");
  await page.getByRole("heading", { name: "Sign-in failed" }).waitFor();
  await page.getByText("link this sign-in under Settings").waitFor();
  await shot(page, "dark-390-sign-in-failed");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "Back to sign in" }).click();
  await page.getByLabel("Email").fill("grace@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto(`${site.gateway.url}/settings`);
  // The provider remembers the sign-in of a moment ago.
  await page.getByRole("button", { name: "Link an account" }).click();
  await page.getByText("Your account is linked").waitFor();
  await page.getByRole("button", { name: /Unlink grace@example.com/ }).waitFor();
});

test("under a path of its own, and by an invitation whose token is in no request", async () => {
  const origin = `http://127.0.0.1:${await freePort()}`;
  const url = `${origin}/gateway`;
  const people = await startProvider(url);
  const below = await openSite({ config: people.settings(url) });
  try {
    people.people.set("bob", { email: "bob@example.org", email_verified: true });
    const root = await below.gateway.signIn("root");
    const group = await below.gateway.rpc("group.create", { name: "Analysts" }, root);
    const { token } = await below.gateway.rpc("group.invite.create", { group_id: group.id }, root);
    const { page } = await below.visit();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(oneTimeLink(url, "join", token));
    await page.getByText("invites you to the group Analysts").waitFor();
    await page.getByRole("button", { name: "Sign in with single sign-on" }).click();
    await signInThere(page, people, "bob");
    // The account is a member from the start: there is nothing left to join.
    await page.getByRole("heading", { name: "Analysts" }).waitFor();
    expect(page.url()).toBe(`${url}/groups/${group.id}`);
    expect(asked.length).toBeGreaterThan(3);
    expect(asked.filter((address) => address.includes(token))).toEqual([]);
  } finally {
    await below.stop();
    people.stop();
  }
});

test("an account with an unconfirmed address is linked after an administrator confirmed it, and is its owner's alone", async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  const people = await startProvider(url);
  const linking = await openSite({ config: { ...people.settings(url), oidcLinkByEmail: true } });
  try {
    people.people.set("hedy", { email: "hedy@example.com", email_verified: true });
    await linking.gateway.signIn("root");
    const before = await linking.gateway.signIn("hedy");
    const hers = await linking.visit();
    const signIn = async () => {
      await hers.page.goto(linking.gateway.url);
      await hers.page.getByRole("button", { name: "Sign in with single sign-on" }).click();
    };
    await signIn();
    await signInThere(hers.page, people, "hedy");
    await hers.page.getByText("nobody has confirmed that it is yours").waitFor();
    await shot(hers.page, "sign-in-unconfirmed");

    const admin = await linking.visit();
    await admin.page.goto(linking.gateway.url);
    await admin.page.getByLabel("Email").fill("root@example.com");
    await admin.page.getByLabel("Password").fill(PASSWORD);
    await admin.page.locator("form").getByRole("button", { name: "Sign in" }).click();
    await admin.page.getByRole("heading", { name: "Overview" }).waitFor();
    await admin.page.goto(`${linking.gateway.url}/users`);
    await admin.page.getByRole("row", { name: /hedy@example.com/ }).click();
    await admin.page.getByText("(not confirmed)").waitFor();
    await shot(admin.page, "user-unconfirmed");
    await admin.page.getByRole("button", { name: "Confirm address" }).click();
    await admin.page.getByRole("dialog").getByRole("button", { name: "Confirm address" }).last().click();
    await admin.page.getByText("(not confirmed)").waitFor({ state: "detached" });

    await signIn();
    await hers.page.getByRole("heading", { name: "Overview" }).waitFor();
    expect((await linking.gateway.call("auth.me", {}, before)).error.code).toBe(-32005);
  } finally {
    await linking.stop();
    people.stop();
  }
});

test("a redirect that nobody here began signs nobody in", async () => {
  const { page } = await site.visit();
  await page.goto(`${site.gateway.url}/signed-in?code=stolen&state=guessed`);
  await page.getByText("was not begun in this browser").waitFor();
  expect(await page.evaluate(() => localStorage.getItem("model-gateway.session"))).toBeNull();
});

test("without passwords there is the button alone, and the command line signs in by way of the browser", async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  const people = await startProvider(url);
  const bare = await openSite({ config: { ...people.settings(url), passwordSignIn: false } });
  const shell = openShell({ MODEL_GATEWAY_URL: bare.gateway.url });
  const cli = shell.begin(["login"]);
  try {
    people.people.set("ada", { email: "ada@example.org", email_verified: true });
    const [, address] = await cli.said(/ {2}(http\S+)\n/);
    const [, code] = await cli.said(/the code (\S+)/);
    const { page } = await bare.visit();
    await page.goto(address!);
    const button = page.getByRole("button", { name: "Sign in with single sign-on" });
    await button.waitFor();
    expect(await page.getByLabel("Password").count()).toBe(0);
    await shot(page, "sign-in-provider-only");
    await button.click();
    await signInThere(page, people, "ada");
    await page.getByRole("heading", { name: "Sign in the command line" }).waitFor();
    await page.getByText(code!).waitFor();
    await shot(page, "cli-sign-in");
    expect(await axeFindings(page)).toEqual([]);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("heading", { name: "Signed in" }).waitFor();
    expect(await cli.ended).toMatchObject({ code: 0, out: expect.stringContaining("as ada@example.org") });
    expect((await shell.run(["keys", "create", "made"])).out).toStartWith("service-");
  } finally {
    cli.stop();
    shell.end();
    await bare.stop();
    people.stop();
  }
});

test("an address that no command line made offers nothing", async () => {
  const { page } = await site.signedInAs("root");
  for (const query of ["", "?port=80&challenge=x&state=y", "?port=9999@evil.example&challenge=x&state=y"]) {
    await page.goto(`${site.gateway.url}/cli-sign-in${query}`);
    await page.getByText("This address is incomplete").waitFor();
    expect(await page.getByRole("button", { name: "Sign in", exact: true }).count()).toBe(0);
  }
});
