import { afterEach, expect, test } from "bun:test";
import { ADMIN_TOKEN, PASSWORD } from "@model-gateway/testing/gateway.ts";
import { openSso, type Sso, verified } from "./support.ts";

let sso: Sso;
afterEach(() => sso.stop());

const tierOf = async ({ access_token }: { access_token: string }): Promise<string> =>
  (await sso.gateway.rpc("billing.plan", {}, access_token)).current_tier;

test("someone whom the provider knows gets an account, and an ordinary session", async () => {
  sso = await openSso();
  const root = await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("Ada@Example.org", { name: "Ada Lovelace" }));
  const { session, return_to } = await sso.signIn("ada", { return_to: "/usage?by=model#now" });
  expect(return_to).toBe("/usage?by=model#now");
  expect(session?.user).toMatchObject({ email: "ada@example.org", name: "Ada Lovelace", is_admin: false });

  const { rpc, call } = sso.gateway;
  const { entries } = await rpc("audit.list", { action: "auth.oidc" }, root);
  expect(entries).toMatchObject([{ actor: "ada@example.org", actor_id: session!.user.id, details: {} }]);
  const sessions = await rpc("auth.sessions.list", {}, session!.access_token);
  expect(sessions).toHaveLength(1);
  expect(sessions[0]).toMatchObject({ current: true });
  const renewed = await rpc("auth.refresh", { refresh_token: session!.refresh_token });
  expect((await call("auth.refresh", { refresh_token: session!.refresh_token })).error).toBeDefined();
  // A refresh token that came back ends the family, as after a sign-in by password.
  expect((await call("auth.refresh", { refresh_token: renewed.refresh_token })).error).toBeDefined();
  expect((await call("auth.login", { email: "ada@example.org", password: "" })).error).toBeDefined();
});

test("an account belongs to the provider's subject, not to an address", async () => {
  sso = await openSso();
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("ada@example.org"));
  const first = await sso.signIn("ada");
  sso.provider.people.set("ada", verified("ada@new.example"));
  const later = await sso.signIn("ada");
  expect(later.session?.user.id).toBe(first.session!.user.id);
  expect(later.session?.user.email).toBe("ada@example.org");
  const [identity] = await sso.gateway.rpc("auth.identities.list", {}, later.session!.access_token);
  expect(identity).toMatchObject({ issuer: sso.provider.issuer, email: "ada@new.example" });

  sso.provider.people.set("mallory", verified("ada@example.org"));
  expect(await sso.signIn("mallory")).toMatchObject({ status: 409 });
});

test("an address that the provider has not verified makes no account", async () => {
  sso = await openSso();
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", { email: "root@example.com", email_verified: false });
  expect((await sso.signIn("ada")).message).toContain("has not verified your email");
  sso.provider.people.set("ada", { email: "ada@example.org" });
  expect((await sso.signIn("ada")).status).toBe(403);
  sso.provider.people.set("ada", {});
  expect((await sso.signIn("ada")).message).toContain("no email address");
  sso.provider.people.set("ada", { email: "ada@example.org", email_verified: "false" });
  expect((await sso.signIn("ada")).status).toBe(403);
});

test("an operator may trust a provider that verifies every address without saying so", async () => {
  sso = await openSso({ config: { oidcTrustEmail: true, oidcEmailDomains: ["example.org"] } });
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", { email: "ada@example.org" });
  expect((await sso.signIn("ada")).session?.user.email).toBe("ada@example.org");
  sso.provider.people.set("eve", { email: "eve@example.org.evil.example" });
  expect((await sso.signIn("eve")).message).toContain("example.org.evil.example may not sign in here");
});

test("an existing account is linked by its address only where the operator allows it", async () => {
  sso = await openSso();
  const token = await sso.gateway.signIn("ada");
  sso.provider.people.set("ada", verified("ada@example.com"));
  expect((await sso.signIn("ada")).message).toContain("link this sign-in under Settings");

  // Its owner links it.
  const linked = await sso.signIn("ada", { return_to: "/settings" }, token);
  expect(linked).toMatchObject({ status: 200, session: null, return_to: "/settings" });
  const { session } = await sso.signIn("ada");
  expect(session?.user.email).toBe("ada@example.com");

  // Not twice, to another account.
  const other = await sso.gateway.signIn("grace");
  expect(await sso.signIn("ada", {}, other)).toMatchObject({ status: 409 });

  const { rpc, call } = sso.gateway;
  const [identity] = await rpc("auth.identities.list", {}, token);
  const foreign = await call("auth.identities.remove", { identity_id: identity.id }, other);
  expect(foreign.error.message).toContain("`identity_id`");
  await rpc("auth.identities.remove", { identity_id: identity.id }, token);
  expect(await rpc("auth.identities.list", {}, token)).toEqual([]);
  expect((await sso.signIn("ada")).status).toBe(409);
});

test("with the operator's permission a verified address links", async () => {
  sso = await openSso({ config: { oidcLinkByEmail: true } });
  const root = await sso.gateway.signIn("root");
  const { id } = await sso.gateway.rpc("auth.me", {}, await sso.gateway.signIn("ada"));
  sso.provider.people.set("eve", { email: "ada@example.com", email_verified: false });
  expect((await sso.signIn("eve")).status).toBe(403);
  sso.provider.people.set("ada", verified("ada@example.com"));
  // She registered herself: only the provider's word is not enough.
  expect(await sso.signIn("ada")).toMatchObject({
    status: 409,
    message: expect.stringContaining("nobody has confirmed that it is yours"),
  });
  await sso.gateway.rpc("users.update", { user_id: id, email_verified: true }, root);
  expect((await sso.signIn("ada")).session?.user).toMatchObject({ email: "ada@example.com", name: "ada" });
});

test("the only way into an account cannot be unlinked", async () => {
  sso = await openSso();
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("ada@example.org"));
  const { session } = await sso.signIn("ada");
  const [identity] = await sso.gateway.rpc("auth.identities.list", {}, session!.access_token);
  const refused = await sso.gateway.call(
    "auth.identities.remove",
    { identity_id: identity.id },
    session!.access_token,
  );
  expect(refused.error.message).toContain("only way into your account");
});

test("disabled people stay out, and newcomers where the operator wants none", async () => {
  sso = await openSso();
  const root = await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("ada@example.org"));
  const { session } = await sso.signIn("ada");
  await sso.gateway.rpc("users.update", { user_id: session!.user.id, disabled: true }, root);
  expect(await sso.signIn("ada")).toMatchObject({
    status: 401,
    message: expect.stringContaining("disabled"),
  });
  await sso.stop();

  sso = await openSso({ config: { oidcRegistration: false } });
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("ada@example.org"));
  expect(await sso.signIn("ada")).toMatchObject({
    status: 403,
    message: expect.stringContaining("no account here"),
  });
});

test("an invitation lets a newcomer in with the provider, once and only whom it is for", async () => {
  sso = await openSso({ config: { oidcRegistration: false } });
  const root = await sso.gateway.signIn("root");
  const invite = (email?: string) =>
    sso.gateway.rpc<{ token: string }>("users.invite", { ...(email && { email }), tier: "pro" }, root);
  sso.provider.people.set("ada", verified("ada@example.org"));
  sso.provider.people.set("bob", verified("bob@example.org"));
  const { token: forBob } = await invite("bob@example.org");
  expect(await sso.signIn("ada", { invitation: forBob })).toMatchObject({
    status: 403,
    message: expect.stringContaining("another email address"),
  });
  const { token } = await invite();
  const { session } = await sso.signIn("ada", { invitation: token });
  expect(session!.user).toMatchObject({ email: "ada@example.org", is_admin: false });
  expect(await tierOf(session!)).toBe("pro");
  expect(await sso.signIn("bob", { invitation: token })).toMatchObject({
    status: 404,
    message: expect.stringContaining("used before"),
  });
  expect((await sso.signIn("bob", { invitation: forBob })).session).not.toBeNull();
  // With the account there the invitation does not matter.
  expect((await sso.signIn("ada", { invitation: token })).session).not.toBeNull();

  const group = await sso.gateway.rpc("group.create", { name: "Analysts" }, root);
  const toGroup = await sso.gateway.rpc("group.invite.create", { group_id: group.id, max_uses: 1 }, root);
  sso.provider.people.set("eve", verified("eve@example.org"));
  const eve = (await sso.signIn("eve", { invitation: toGroup.token })).session!;
  await sso.gateway.rpc("group.invite.accept", { token: toGroup.token }, eve.access_token);
  sso.provider.people.set("mallory", verified("mallory@example.org"));
  for (const invitation of [toGroup.token, "invite-guess", "link-guess", "x".repeat(128)])
    expect((await sso.signIn("mallory", { invitation })).status).toBe(404);
});

test("the last administrator keeps the rights that the provider takes", async () => {
  sso = await openSso({
    config: { registrationOpen: null, oidcAdmin: { claim: "groups", value: "admins" } },
  });
  sso.provider.people.set("ada", verified("ada@example.org", { groups: ["admins"] }));
  expect((await sso.signIn("ada")).session?.user.is_admin).toBe(true);
  sso.provider.people.set("ada", verified("ada@example.org", { groups: [] }));
  expect((await sso.signIn("ada")).session?.user.is_admin).toBe(true);
});

test("the first account comes from this machine or with the setup link, unless a claim says who administers", async () => {
  sso = await openSso({ config: { registrationOpen: null, trustedProxies: ["127.0.0.1"] } });
  sso.provider.people.set("ada", verified("ada@example.org"));
  const { setupToken } = sso.gateway.app.rooms.accounts;
  const elsewhere = async (body: Record<string, unknown>) => {
    const { url, cookie } = await sso.begin(body);
    const query = await sso.provider.visit(url, "ada");
    const answer = await fetch(`${sso.gateway.url}/api/auth/oidc/finish`, {
      method: "POST",
      headers: { "content-type": "application/json", cookie, "x-forwarded-for": "203.0.113.9" },
      body: JSON.stringify({ query }),
    });
    return { status: answer.status, body: await answer.json() };
  };
  expect(await elsewhere({})).toMatchObject({ status: 403 });
  expect(await elsewhere({ setup_token: "guessed" })).toMatchObject({ status: 403 });
  const first = await elsewhere({ setup_token: setupToken });
  expect(first).toMatchObject({ status: 200, body: { session: { user: { is_admin: true } } } });
  expect(await tierOf(first.body.session)).toBe("enterprise");
  sso.provider.people.set("bob", verified("bob@example.org"));
  expect(await tierOf((await sso.signIn("bob")).session!)).toBe("free");
});

test("where a claim says who administers, the first person to come owns nothing by that alone", async () => {
  const oidcAdmin = { claim: "groups", value: "admins" };
  for (const [groups, tier] of [
    [["admins"], "enterprise"],
    [["staff"], "free"],
  ] as const) {
    sso = await openSso({ config: { registrationOpen: null, oidcAdmin } });
    sso.provider.people.set("ada", verified("ada@example.org", { groups }));
    expect(await tierOf((await sso.signIn("ada")).session!)).toBe(tier);
    if (tier === "enterprise") await sso.stop();
  }
});

test("where passwords are turned off none is set and none signs in", async () => {
  sso = await openSso();
  const admin = await sso.gateway.signIn("root");
  const { token } = await sso.gateway.rpc("users.invite", {}, admin);
  const group = await sso.gateway.rpc("group.create", { name: "Analysts" }, admin);
  const invitation = await sso.gateway.rpc("group.invite.create", { group_id: group.id }, admin);
  sso.gateway.app.rooms.accounts.options.passwordSignIn = false;
  const account = { email: "new@example.com", password: PASSWORD };
  for (const [method, params, bearer] of [
    ["auth.login", { email: "root@example.com", password: PASSWORD }],
    ["auth.register", account],
    ["auth.link.accept", { token, ...account }],
    ["group.invite.register", { token: invitation.token, ...account }],
    ["auth.password.set", { current_password: PASSWORD, new_password: "another password" }, admin],
  ] as const) {
    const { error } = await sso.gateway.call(method, params, bearer);
    expect(`${method}: ${error?.message}`).toBe(
      `${method}: Passwords are turned off here; sign in with the provider`,
    );
  }
  sso.provider.people.set("ada", verified("ada@example.org"));
  expect((await sso.signIn("ada")).status).toBe(200);
});

test("the entrance says what there is, and without a provider there is nothing", async () => {
  sso = await openSso({ config: { oidcLabel: "Sign in with Example" } });
  const setup = async () => (await fetch(`${sso.gateway.url}/api/setup`)).json();
  expect(await setup()).toMatchObject({ provider: "Sign in with Example", password_sign_in: true });
  await sso.stop();

  sso = await openSso({ config: { oidcIssuer: null, oidcClientId: null } });
  expect(await setup()).toMatchObject({ provider: null, password_sign_in: true });
  expect(sso.begin()).rejects.toThrow("no sign-in provider");
  // The admin token is not a person.
  expect(sso.begin({}, ADMIN_TOKEN)).rejects.toThrow();
});
