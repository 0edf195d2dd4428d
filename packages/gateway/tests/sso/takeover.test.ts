/** Linking by address: whose account it was before has nothing of it afterwards. */
import { afterEach, expect, test } from "bun:test";
import { openSso, type Sso, type Tokens, verified } from "./support.ts";

let sso: Sso;
let root: string;
afterEach(() => sso.stop());

const BOSS = "boss@corp.example";
const OWN = "mallory's own password";

/** Registration closed, as after the first account; an administrator by claim; linking by address. */
async function opened(config: object = {}): Promise<void> {
  sso = await openSso({
    config: {
      registrationOpen: null,
      oidcLinkByEmail: true,
      oidcAdmin: { claim: "groups", value: "admins" },
      ...config,
    },
  });
  root = await sso.gateway.signIn("root");
  sso.provider.people.set("boss", verified(BOSS, { groups: ["admins"] }));
  sso.provider.people.set("mallory", verified("mallory@corp.example"));
}
const login = (password: string) => sso.gateway.call<Tokens>("auth.login", { email: BOSS, password });
const invited = async (bearer: string) => {
  const { id } = await sso.gateway.rpc("group.create", { name: "g" }, bearer);
  return (await sso.gateway.rpc("group.invite.create", { group_id: id, max_uses: 1 }, bearer)).token;
};
const keyStatus = async (key: string) =>
  (
    await fetch(`${sso.gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "none", messages: [{ role: "user", content: "hi" }] }),
    })
  ).status;

test("a user cannot register someone's address by an invitation and wait for them", async () => {
  await opened();
  const mallory = (await sso.signIn("mallory")).session!;
  const token = await invited(mallory.access_token);
  const account = { token, email: BOSS, password: OWN };
  const { error } = await sso.gateway.call("group.invite.register", account);
  expect(error.message).toContain("have an account");
  expect((await sso.signIn("boss")).session?.user).toMatchObject({ email: BOSS, is_admin: true });
  expect((await login(OWN)).error).toBeDefined();
});

test("an account whose address nobody has verified is not linked, until an administrator does", async () => {
  await opened({ memberInvitationsRegister: true });
  const mallory = (await sso.signIn("mallory")).session!;
  const account = { token: await invited(mallory.access_token), email: BOSS, password: OWN };
  const squatted = await sso.gateway.rpc<Tokens>("group.invite.register", account);
  const refused = await sso.signIn("boss");
  expect(refused).toMatchObject({ status: 409, message: expect.stringContaining("ask an administrator") });
  expect(refused.session).toBeUndefined();
  expect((await login(OWN)).result.user.is_admin).toBe(false);
  const find = async () => (await sso.gateway.rpc("users.list", { search: BOSS }, root)).users[0];
  expect(await find()).toMatchObject({ email_verified: false, is_admin: false });
  const confirm = { user_id: squatted.user.id, email_verified: true };
  expect((await sso.gateway.call("users.update", confirm, squatted.access_token)).error.code).toBe(-32007);

  // What the squatter prepared. Nothing of it survives.
  const held = squatted.access_token;
  const { key } = await sso.gateway.rpc("keys.create", { name: "mine" }, held);
  const invitation = await invited(held);
  expect(await sso.signIn("mallory", {}, held)).toMatchObject({ status: 409 });
  sso.provider.people.set("second", verified("second@corp.example"));
  expect(await sso.signIn("second", {}, held)).toMatchObject({ status: 200 });
  await sso.gateway.rpc("users.update", confirm, root);
  // Bound to another person at this provider: it is not the boss's to take.
  expect(await sso.signIn("boss")).toMatchObject({ status: 409 });
  const [identity] = await sso.gateway.rpc("auth.identities.list", {}, held);
  await sso.gateway.rpc("auth.identities.remove", { identity_id: identity.id }, held);
  await sso.gateway.app.rooms.sso.options.db.run(
    `INSERT INTO identities (id, issuer, subject, user_id, email, created_at, last_used_at)
     VALUES ($1, 'https://old.example', 'mallory', $2, NULL, $3, $3)`,
    [crypto.randomUUID(), squatted.user.id, new Date().toISOString()],
  );
  expect(await keyStatus(key)).toBe(404);

  const { session } = await sso.signIn("boss");
  expect(session?.user).toMatchObject({ id: squatted.user.id, is_admin: true });
  expect((await login(OWN)).error).toBeDefined();
  expect((await sso.gateway.call("auth.me", {}, held)).error.code).toBe(-32005);
  const refresh = { refresh_token: squatted.refresh_token };
  expect((await sso.gateway.call("auth.refresh", refresh)).error.code).toBe(-32005);
  expect(await keyStatus(key)).toBe(401);
  expect(await sso.gateway.rpc("auth.sessions.list", {}, session!.access_token)).toHaveLength(1);
  expect(await sso.gateway.rpc("auth.identities.list", {}, session!.access_token)).toHaveLength(1);
  // The boss administers the service now, and his account made this invitation.
  const registering = { token: invitation, email: "x@corp.example", password: OWN };
  expect((await sso.gateway.call("group.invite.register", registering)).error).toBeDefined();
  expect((await sso.signIn("second")).session?.user.email).toBe("second@corp.example");
  expect(await find()).toMatchObject({ email_verified: true, active_keys: 0 });
});

test("whoever is linking their own sign-in to the account while it is taken over does not get in", async () => {
  await opened();
  const { link } = await sso.gateway.rpc("users.create", { email: BOSS }, root);
  const intruder = await sso.gateway.rpc<Tokens>("auth.link.accept", { token: link.token, password: OWN });
  let boss: Awaited<ReturnType<Sso["signIn"]>> | null = null;
  sso.provider.tamper = async (claims, sign) => {
    sso.provider.tamper = null;
    boss = await sso.signIn("boss");
    return sign(claims);
  };
  expect(await sso.signIn("mallory", {}, intruder.access_token)).toMatchObject({ status: 401 });
  expect(boss).toMatchObject({ session: { user: { id: intruder.user.id, is_admin: true } } });
  expect((await sso.signIn("mallory")).session?.user.email).toBe("mallory@corp.example");
});

test("an account that an administrator made for the address is linked, and its open link ends", async () => {
  await opened();
  const made = await sso.gateway.rpc("users.create", { email: BOSS }, root);
  const toSelf = await sso.gateway.rpc("users.invite", { email: "mallory@corp.example" }, root);
  const accept = (token: string) => sso.gateway.call("auth.link.accept", { token, password: OWN });
  expect((await sso.signIn("boss")).session?.user.id).toBe(made.id);
  expect((await accept(made.link.token)).error.message).toContain("unknown, expired");
  expect((await accept(toSelf.token)).result).toBeDefined();
  expect((await sso.signIn("mallory")).session?.user.email).toBe("mallory@corp.example");

  // An address that the bearer of a link chose is nobody's word but theirs.
  const open = await sso.gateway.rpc("users.invite", {}, root);
  const taken = { token: open.token, password: OWN, email: "ceo@corp.example" };
  await sso.gateway.rpc("auth.link.accept", taken);
  sso.provider.people.set("ceo", verified("ceo@corp.example"));
  expect(await sso.signIn("ceo")).toMatchObject({ status: 409 });
});

test("an account that is bound to a person at the provider is not given to another with the address", async () => {
  await opened();
  const first = (await sso.signIn("boss")).session!;
  sso.provider.people.set("successor", verified(BOSS));
  expect(await sso.signIn("successor")).toMatchObject({ status: 409 });
  expect((await sso.gateway.call("auth.me", {}, first.access_token)).error).toBeUndefined();
});

test("a disabled account is not taken over", async () => {
  await opened();
  const { id } = await sso.gateway.rpc("users.create", { email: BOSS }, root);
  await sso.gateway.rpc("users.update", { user_id: id, disabled: true }, root);
  expect(await sso.signIn("boss")).toMatchObject({ message: expect.stringContaining("disabled") });
  await sso.gateway.rpc("users.update", { user_id: id, disabled: false }, root);
  expect((await sso.signIn("boss")).session?.user.id).toBe(id);
});

test("a single-use invitation to a group makes one account with the provider, a member at once", async () => {
  await opened({ oidcRegistration: false });
  const { id: group_id } = await sso.gateway.rpc("group.create", { name: "lab" }, root);
  const invite = () => sso.gateway.rpc("group.invite.create", { group_id, max_uses: 1 }, root);
  const { token } = await invite();
  const names = ["one", "two", "three", "four"];
  for (const name of names) sso.provider.people.set(name, verified(`${name}@corp.example`));
  const answers = await Promise.all(names.map((name) => sso.signIn(name, { invitation: token })));
  const [session, ...more] = answers.flatMap((answer) => answer.session ?? []);
  expect(more).toEqual([]);
  expect((await sso.gateway.rpc("users.list", {}, root)).total).toBe(2);
  expect((await sso.gateway.rpc("group.get", { group_id }, session!.access_token)).my_role).toBe("member");
  expect(answers.find((answer) => answer.session)?.return_to).toBe(`/groups/${group_id}`);

  // A member's registers nobody here either, but lets in whom the provider's registration admits.
  await sso.gateway.rpc("group.members.update", { group_id, user_id: session!.user.id, role: "admin" }, root);
  const byMember = await sso.gateway.rpc("group.invite.create", { group_id }, session!.access_token);
  const newcomer = names.find((name) => !session!.user.email.startsWith(name))!;
  expect(await sso.signIn(newcomer, { invitation: byMember.token })).toMatchObject({ status: 403 });
  sso.gateway.app.rooms.sso.options.settings!.registers = true;
  const joined = await sso.signIn(newcomer, { invitation: byMember.token });
  expect(joined.return_to).toBe(`/groups/${group_id}`);
  expect((await sso.gateway.rpc("group.get", { group_id }, root)).member_count).toBe(3);
});
