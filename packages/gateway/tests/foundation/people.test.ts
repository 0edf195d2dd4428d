import { afterEach, expect, test } from "bun:test";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";

let gateway: TestGateway;
afterEach(() => gateway.stop());

interface Tokens {
  access_token: string;
  refresh_token: string;
  user: { id: string; is_admin: boolean };
}

const signIn = (email: string, password = PASSWORD) =>
  gateway.call<Tokens>("auth.login", { email, password });
const works = async (bearer: string) => (await gateway.call("auth.me", {}, bearer)).error === undefined;
const keyWorks = async (key: string) =>
  (
    await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "none", messages: [{ role: "user", content: "hi" }] }),
    })
  ).status !== 401;

test("an administrator invites someone by a link that works once", async () => {
  gateway = await bootGateway({ config: { registrationOpen: false } });
  gateway.app.rooms.accounts.options.signUp.registrationOpen = null;
  const admin = await gateway.signIn("ada");
  gateway.app.rooms.accounts.options.signUp.registrationOpen = false;
  const { token, id } = await gateway.rpc("users.invite", { tier: "pro" }, admin);
  expect(await gateway.rpc("auth.link.show", { token })).toMatchObject({
    kind: "invitation",
    invited_by: "ada",
    email: null,
  });
  const [pending] = await gateway.rpc("users.links.list", {}, admin);
  expect(pending).toMatchObject({ id, kind: "invitation", created_by: "ada" });
  expect(JSON.stringify(pending)).not.toContain(token);

  const account = { token, password: PASSWORD, email: "Grace@Example.com", name: "Grace" };
  expect((await gateway.call("auth.link.accept", { ...account, email: undefined })).error.message).toContain(
    "`email`",
  );
  const both = await Promise.all([
    gateway.call<Tokens>("auth.link.accept", account),
    gateway.call<Tokens>("auth.link.accept", { ...account, email: "other@example.com" }),
  ]);
  expect(both.filter(({ result }) => result)).toHaveLength(1);
  const made = both.find(({ result }) => result)!.result;
  expect(made.user.is_admin).toBe(false);
  expect((await gateway.rpc("billing.plan", {}, made.access_token)).current_tier).toBe("pro");
  expect((await gateway.call("auth.link.show", { token })).error.message).toContain("used before");
  expect(await gateway.rpc("users.links.list", {}, admin)).toEqual([]);
});

test("an invitation makes the account that it says: rights, tier and group", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const { id: group_id } = await gateway.rpc("group.create", { name: "lab" }, admin);
  const terms = { tier: "pro", is_admin: true, group_id, note: "Welcome to the lab" };
  const { token } = await gateway.rpc("users.invite", terms, admin);
  const [pending] = await gateway.rpc("users.links.list", {}, admin);
  expect(pending).toMatchObject({ tier: "pro", is_admin: true, group_name: "lab", note: terms.note });
  expect((await gateway.rpc("auth.link.show", { token })).note).toBe(terms.note);
  const { user, access_token } = await gateway.rpc<Tokens>("auth.link.accept", {
    token,
    password: PASSWORD,
    email: "grace@example.com",
  });
  expect(user.is_admin).toBe(true);
  const { members } = await gateway.rpc("group.get", { group_id }, access_token);
  expect(members).toContainEqual(expect.objectContaining({ email: "grace@example.com", role: "member" }));
  // The group may be gone by then.
  const later = await gateway.rpc("users.invite", { group_id }, admin);
  await gateway.rpc("group.delete", { group_id }, admin);
  expect((await gateway.call("users.invite", { group_id }, admin)).error).toMatchObject({
    data: { fields: ["group_id"] },
  });
  const made = { token: later.token, password: PASSWORD, email: "hal@example.com" };
  const hal = await gateway.rpc<Tokens>("auth.link.accept", made);
  const { key, id: key_id } = await gateway.rpc("keys.create", { name: "k" }, hal.access_token);
  expect(await keyWorks(key)).toBe(true);
  const rotated = await gateway.rpc("users.keys.rotate", { key_id }, admin);
  expect([await keyWorks(key), await keyWorks(rotated.key)]).toEqual([false, true]);
  expect(await gateway.rpc("users.get", { user_id: hal.user.id }, admin)).toMatchObject({
    balance: 0,
    groups: [],
    sessions: [expect.objectContaining({ id: expect.any(String) })],
  });
});

test("an invitation for an address makes no other account, and a revoked or expired one makes none", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const invite = () => gateway.rpc("users.invite", { email: "grace@example.com" }, admin);
  const accept = (token: string, email?: string) =>
    gateway.call<Tokens>("auth.link.accept", { token, password: PASSWORD, email });
  const first = await invite();
  expect((await accept(first.token, "eve@example.com")).error.message).toContain("another email address");
  await gateway.rpc("users.links.revoke", { link_id: first.id }, admin);
  expect((await accept(first.token)).error.message).toContain("unknown, expired");
  const second = await invite();
  expect((await accept(second.token)).result.access_token).toBeString();
  // A creator who lost the account takes the open links along.
  const grace = (await signIn("grace@example.com")).result;
  await gateway.rpc("users.update", { user_id: grace.user.id, is_admin: true }, admin);
  const hers = await gateway.rpc("users.invite", {}, grace.access_token);
  await gateway.rpc("users.update", { user_id: grace.user.id, disabled: true }, admin);
  expect((await accept(hers.token, "new@example.com")).error.message).toContain("unknown, expired");
});

test("people are listed, searched, created, promoted and put on a tier; nobody else may", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const member = await gateway.signIn("mallory");
  for (const method of ["users.list", "users.invite", "users.links.list"])
    expect((await gateway.call(method, {}, member)).error.code).toBe(-32007);
  expect((await gateway.call("users.list", {})).error.code).toBe(-32005);

  const made = await gateway.rpc(
    "users.create",
    { email: "grace@example.com", name: "Grace 100%_Hopper", tier: "enterprise" },
    admin,
  );
  expect((await signIn("grace@example.com", "")).error).toBeDefined();
  expect((await signIn("grace@example.com")).error.message).toBe("Email or password is wrong");
  expect(await gateway.rpc("auth.link.show", { token: made.link.token })).toMatchObject({
    kind: "password",
    email: "grace@example.com",
    name: "Grace 100%_Hopper",
  });
  const session = await gateway.rpc<Tokens>("auth.link.accept", {
    token: made.link.token,
    password: PASSWORD,
  });
  expect(session.user.id).toBe(made.id);

  const find = async (search: string) =>
    (await gateway.rpc("users.list", { search }, admin)).users.map(({ email }: { email: string }) => email);
  expect(await find("HOPPER")).toEqual(["grace@example.com"]);
  expect(await find("100%_")).toEqual(["grace@example.com"]);
  expect(await find("%")).toEqual(["grace@example.com"]);
  expect(await find("nobody")).toEqual([]);
  expect(await gateway.rpc("users.list", { limit: 1, offset: 1 }, admin)).toMatchObject({ total: 3 });
  const listed = JSON.stringify(await gateway.rpc("users.list", {}, admin));
  expect(listed).not.toContain("password");
  expect(listed).not.toContain("argon2");

  expect(
    (await gateway.call("users.update", { user_id: made.id, tier: "gold" }, admin)).error.message,
  ).toContain("`tier`");
  await gateway.rpc("users.update", { user_id: made.id, tier: "free", is_admin: true }, admin);
  const [grace] = (await gateway.rpc("users.list", { search: "grace" }, admin)).users;
  expect(grace).toMatchObject({ tier: "free", is_admin: true, disabled: false });
  expect((await gateway.call("users.list", {}, session.access_token)).result).toBeDefined();
});

test("disabling an account ends its keys and sessions at once; enabling brings the keys back", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const grace = (
    await gateway.call<Tokens>("auth.register", { email: "grace@example.com", password: PASSWORD })
  ).result;
  const { key } = await gateway.rpc("keys.create", { name: "laptop" }, grace.access_token);
  expect(await keyWorks(key)).toBe(true);
  await gateway.rpc("users.update", { user_id: grace.user.id, disabled: true }, admin);
  expect([await works(grace.access_token), await keyWorks(key)]).toEqual([false, false]);
  expect((await gateway.call("auth.refresh", { refresh_token: grace.refresh_token })).error.code).toBe(
    -32005,
  );
  expect((await signIn("grace@example.com")).error.message).toContain("disabled");
  expect((await signIn("grace@example.com", "not the password")).error.message).toBe(
    "Email or password is wrong",
  );
  await gateway.rpc("users.update", { user_id: grace.user.id, disabled: false }, admin);
  expect(await keyWorks(key)).toBe(true);
  expect((await signIn("grace@example.com")).result).toBeDefined();
});

test("the service keeps an administrator", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const { id } = await gateway.rpc("auth.me", {}, admin);
  for (const patch of [{ is_admin: false }, { disabled: true }])
    expect((await gateway.call("users.update", { user_id: id, ...patch }, admin)).error.message).toContain(
      "yourself",
    );
  const other = (await gateway.call<Tokens>("auth.register", { email: "b@example.com", password: PASSWORD }))
    .result;
  await gateway.rpc("users.update", { user_id: other.user.id, is_admin: true }, admin);
  const answers = await Promise.all([
    gateway.call("users.update", { user_id: other.user.id, is_admin: false }, admin),
    gateway.call("users.update", { user_id: id, is_admin: false }, other.access_token),
  ]);
  expect(answers.filter(({ error }) => error)).toHaveLength(1);
});

test("a reset ends the password and the sessions; the link sets a new one, once", async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("ada");
  const grace = (
    await gateway.call<Tokens>("auth.register", { email: "grace@example.com", password: PASSWORD })
  ).result;
  const old = await gateway.rpc("users.password.reset", { user_id: grace.user.id }, admin);
  const { token } = await gateway.rpc("users.password.reset", { user_id: grace.user.id }, admin);
  expect(await works(grace.access_token)).toBe(false);
  expect((await signIn("grace@example.com")).error.code).toBe(-32005);
  expect((await gateway.call("auth.link.show", { token: old.token })).error).toBeDefined();
  const next = "another good password";
  expect((await gateway.call("auth.link.accept", { token, password: next })).result).toBeDefined();
  expect((await gateway.call("auth.link.accept", { token, password: PASSWORD })).error).toBeDefined();
  expect((await signIn("grace@example.com", next)).result).toBeDefined();
});

test("everyone sees their sessions, signs out of them at once, and changes their password", async () => {
  gateway = await bootGateway();
  const here = await gateway.signIn("ada");
  const elsewhere = (await signIn("ada@example.com")).result;
  const third = (await signIn("ada@example.com")).result;
  const sessions = await gateway.rpc("auth.sessions.list", {}, here);
  expect(sessions).toHaveLength(3);
  expect(sessions.filter(({ current }: { current: boolean }) => current)).toHaveLength(1);
  const other = await gateway.signIn("grace");
  const [theirs] = await gateway.rpc("auth.sessions.list", {}, other);
  expect(await gateway.rpc("auth.sessions.end", { session_id: theirs.id }, here)).toEqual({ ended: 0 });
  expect(await works(other)).toBe(true);

  const list = await gateway.rpc("auth.sessions.list", {}, elsewhere.access_token);
  const own = list.find(({ current }: { current: boolean }) => current);
  expect(await gateway.rpc("auth.sessions.end", { session_id: own.id }, here)).toEqual({ ended: 1 });
  expect(await works(elsewhere.access_token)).toBe(false);
  expect(
    (await gateway.call("auth.refresh", { refresh_token: elsewhere.refresh_token })).error,
  ).toBeDefined();
  expect([await works(here), await works(third.access_token)]).toEqual([true, true]);

  expect(await gateway.rpc("auth.name.set", { name: " Ada King " }, here)).toEqual({ ok: true });
  expect(await gateway.rpc("auth.me", {}, here)).toMatchObject({ name: "Ada King" });
  expect((await gateway.call("auth.name.set", { name: " " }, here)).error.message).toContain("`name`");

  const change = (current_password: string, new_password: string) =>
    gateway.call("auth.password.set", { current_password, new_password }, here);
  expect((await change("wrong password", "a new password")).error.message).toContain("`current_password`");
  expect((await change(PASSWORD, "short")).error.message).toContain("new_password");
  expect((await change(PASSWORD, PASSWORD)).error.message).toContain("is your password already");
  expect((await change(PASSWORD, "a new password")).result).toEqual({ ok: true });
  expect([await works(here), await works(third.access_token)]).toEqual([true, false]);
  expect((await signIn("ada@example.com")).error).toBeDefined();
  await until(
    "the new password signs in",
    async () => (await signIn("ada@example.com", "a new password")).result !== undefined,
  );
  expect(await gateway.rpc("auth.sessions.end", {}, here)).toEqual({ ended: 1 });
  expect(await gateway.rpc("auth.sessions.list", {}, here)).toHaveLength(1);
});
