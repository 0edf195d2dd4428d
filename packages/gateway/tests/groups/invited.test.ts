import { afterEach, expect, test } from "bun:test";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
afterEach(() => gateway.stop());

interface Tokens {
  access_token: string;
  user: { id: string };
}

async function groupOf(name: string) {
  const owner = await gateway.signIn(name);
  const group = await gateway.rpc("group.create", { name: "Analysts", description: "Figures" }, owner);
  const invite = (more: object = {}) =>
    gateway.rpc("group.invite.create", { group_id: group.id, ...more }, owner);
  return { owner, group, invite };
}
const register = (params: object) =>
  gateway.call<Tokens>("group.invite.register", { password: PASSWORD, ...params });
const setRegistration = (open: boolean | null) => {
  gateway.app.rooms.accounts.options.signUp.registrationOpen = open;
};

test("an invitation shows who invites to what, and a new person registers with it", async () => {
  gateway = await bootGateway();
  const { owner, group, invite } = await groupOf("ada");
  setRegistration(null);
  const { token } = await invite({ role: "admin" });
  expect(await gateway.rpc("group.invite.show", { token })).toMatchObject({
    group_name: "Analysts",
    group_description: "Figures",
    invited_by: "ada",
    role: "admin",
    email: null,
  });
  expect((await register({ token })).error.message).toContain("`email`");
  const made = (await register({ token, email: "grace@example.com", name: "Grace" })).result;
  const seen = await gateway.rpc("group.get", { group_id: group.id }, made.access_token);
  expect(seen.my_role).toBe("admin");
  expect(seen.members.map(({ name }: { name: string }) => name).sort()).toEqual(["Grace", "ada"]);
  // Used up: neither shown nor good for another account, and nothing is left behind.
  expect((await gateway.call("group.invite.show", { token })).error).toBeDefined();
  expect((await register({ token, email: "eve@example.com" })).error.message).toContain("used up");
  expect(
    (await gateway.call("auth.login", { email: "eve@example.com", password: PASSWORD })).error,
  ).toBeDefined();
  expect(
    (await gateway.call("auth.register", { email: "eve@example.com", password: PASSWORD })).error,
  ).toBeDefined();
  expect((await gateway.rpc("users.list", {}, owner)).total).toBe(2);
});

test("two at once share one use: one account, one member", async () => {
  gateway = await bootGateway();
  const { owner, group, invite } = await groupOf("ada");
  const { token } = await invite();
  const answers = await Promise.all([
    register({ token, email: "a@example.com" }),
    register({ token, email: "b@example.com" }),
  ]);
  expect(answers.filter(({ result }) => result)).toHaveLength(1);
  expect((await gateway.rpc("users.list", {}, owner)).total).toBe(2);
  expect((await gateway.rpc("group.get", { group_id: group.id }, owner)).member_count).toBe(2);
});

test("with registration off only a platform administrator's invitation lets someone register", async () => {
  gateway = await bootGateway();
  const { invite: byAdmin } = await groupOf("ada");
  const { invite: byMember } = await groupOf("bob");
  setRegistration(false);
  const refused = await register({ token: (await byMember()).token, email: "x@example.com" });
  expect(refused.error.message).toContain("for people who have an account here");
  const made = await register({ token: (await byAdmin()).token, email: "x@example.com" });
  expect(made.result.access_token).toBeString();
});

test("an address that is invited, or taken, is not exchanged for another", async () => {
  gateway = await bootGateway();
  const { invite } = await groupOf("ada");
  const { token } = await invite({ email: "grace@example.com" });
  expect((await register({ token, email: "eve@example.com" })).error.message).toContain(
    "another email address",
  );
  const open = await invite();
  expect((await register({ token: open.token, email: "ada@example.com" })).error.message).toContain(
    "exists already",
  );
  expect((await register({ token, email: "GRACE@example.com" })).result).toBeDefined();
});

test("pending invitations are listed to the group's admins, and revoked", async () => {
  gateway = await bootGateway();
  const { owner, group, invite } = await groupOf("ada");
  const { id, token } = await invite({ email: "grace@example.com", max_uses: 2 });
  const [pending] = await gateway.rpc("group.invite.list", { group_id: group.id }, owner);
  expect(pending).toMatchObject({ id, email: "grace@example.com", uses: 0, max_uses: 2, created_by: "ada" });
  expect(JSON.stringify(pending)).not.toContain(token);
  const stranger = await gateway.signIn("mallory");
  for (const [method, params] of [
    ["group.invite.list", {}],
    ["group.invite.revoke", { invitation_id: id }],
  ] as const)
    expect((await gateway.call(method, { group_id: group.id, ...params }, stranger)).error).toBeDefined();
  await gateway.rpc("group.invite.revoke", { group_id: group.id, invitation_id: id }, owner);
  expect(await gateway.rpc("group.invite.list", { group_id: group.id }, owner)).toEqual([]);
  expect((await register({ token })).error.message).toContain("unknown");
  const again = await gateway.call("group.invite.revoke", { group_id: group.id, invitation_id: id }, owner);
  expect(again.error).toBeDefined();
});
