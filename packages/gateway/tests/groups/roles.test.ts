import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { kinds } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { Registry } from "../../src/kernel/registry.ts";
import { methods } from "../../src/rooms/groups/index.ts";
import { bootOn, emailOf, signInAll } from "./support.ts";

const roles = [
  "platform", // administrator of the platform, not a member
  "owner",
  "admin",
  "member",
  "inactive", // a member who was deactivated
  "outsider",
  "token", // the admin token
  "anonymous",
] as const;
type Role = (typeof roles)[number];

const ok = "ok";
const notFound = -32000;
const auth = -32005;
const admin = -32007;

/** What each role gets, in the order of `roles`. */
const openToToken = [ok, ok, ok, ok, ok, ok, ok, auth];
const forMembers = [ok, ok, ok, ok, notFound, notFound, auth, auth];
const forAdmins = [ok, ok, ok, admin, admin, admin, auth, auth];
const forOwner = [admin, ok, admin, admin, admin, admin, auth, auth];
const forPlatform = [ok, admin, admin, admin, admin, admin, auth, auth];

interface Fixture {
  gateway: TestGateway;
  groupId: string;
}

/** Harmless params for each method, and who may call it. */
const matrix: Record<string, { params: (fixture: Fixture) => unknown; gets: (number | string)[] }> = {
  "group.create": { params: () => ({ name: "another" }), gets: openToToken },
  "group.list": { params: () => ({}), gets: openToToken },
  "group.get": { params: inGroup(), gets: forMembers },
  "group.series": {
    params: inGroup({ since: "2026-10-01", until: "2026-10-02", by: "model" }),
    gets: forAdmins,
  },
  "group.update": { params: inGroup({ description: "changed" }), gets: forAdmins },
  "group.members.list": { params: inGroup(), gets: forAdmins },
  "group.members.add": { params: inGroup({ email: emailOf("bystander") }), gets: forAdmins },
  "group.members.update": {
    params: inGroup({ user_id: emailOf("bystander"), cost_multiplier: 2 }),
    gets: forAdmins,
  },
  "group.members.remove": { params: inGroup({ user_id: emailOf("passer") }), gets: forAdmins },
  "group.invite.create": { params: inGroup(), gets: forAdmins },
  "group.invite.accept": {
    params: () => ({ token: "unknown" }),
    gets: [...Array(6).fill(notFound), auth, auth],
  },
  "group.invite.show": { params: () => ({ token: "unknown" }), gets: Array(8).fill(notFound) },
  "group.invite.register": {
    params: () => ({ token: "unknown", password: "long enough" }),
    gets: Array(8).fill(notFound),
  },
  "codes.create": { params: () => ({ count: 1, points: 1 }), gets: forPlatform },
  "codes.list": { params: () => ({}), gets: forPlatform },
  "codes.revoke": {
    params: () => ({ id: crypto.randomUUID() }),
    gets: [notFound, ...forPlatform.slice(1)],
  },
  "codes.redeem": {
    params: inGroup({ code: "unknown" }),
    gets: [...Array(6).fill(notFound), auth, auth],
  },
  "group.invite.list": { params: inGroup(), gets: forAdmins },
  "group.invite.revoke": {
    params: inGroup({ invitation_id: "00000000-0000-4000-8000-000000000000" }),
    gets: forAdmins.map((each) => (each === ok ? notFound : each)),
  },
  "group.models.list": { params: inGroup(), gets: forAdmins },
  "group.models.allow": { params: inGroup({ model_ids: ["m"] }), gets: forAdmins },
  "group.models.deny": { params: inGroup({ model_ids: ["n"] }), gets: forAdmins },
  "group.credits.topup": { params: inGroup({ points: 10 }), gets: forPlatform },
  "group.credits.balance": { params: inGroup(), gets: forAdmins },
  "group.credits.allocate": {
    params: inGroup({ user_id: emailOf("owner"), points: 1 }),
    gets: forAdmins,
  },
  "group.delete": { params: inGroup(), gets: forOwner },
};

function inGroup(extra: Record<string, unknown> = {}) {
  return ({ groupId }: Fixture) => ({ group_id: groupId, ...extra });
}

describe.each(kinds)("roles in a group on %s", (kind) => {
  let gateway: TestGateway;
  let bearers: Record<Role, string | undefined>;
  let people: Record<"platform" | "owner" | "bystander" | "passer", string>;

  beforeAll(async () => {
    gateway = await bootOn(kind);
    const signedIn = await signInAll(gateway, [
      "platform",
      "owner",
      "admin",
      "member",
      "inactive",
      "outsider",
      "bystander",
      "passer",
    ]);
    people = signedIn;
    bearers = { ...signedIn, token: ADMIN_TOKEN, anonymous: undefined };
  });
  afterAll(() => gateway.stop());

  async function freshGroup(): Promise<string> {
    const { id } = await gateway.rpc("group.create", { name: "crew" }, people.owner);
    const add = (name: string, role: string) =>
      gateway.rpc("group.members.add", { group_id: id, email: emailOf(name), role }, people.owner);
    await add("admin", "admin");
    await add("member", "member");
    await add("inactive", "admin");
    await add("bystander", "member");
    await add("passer", "member");
    const update = { group_id: id, user_id: emailOf("inactive"), is_active: false };
    await gateway.rpc("group.members.update", update, people.owner);
    await gateway.rpc("group.credits.topup", { group_id: id, points: 100 }, people.platform);
    return id;
  }

  test("the matrix names every method of the room", () => {
    expect([...new Registry([{ methods }]).methods.keys()].sort()).toEqual(Object.keys(matrix).sort());
  });

  test.each(Object.keys(matrix))("%s", async (method) => {
    const { params, gets } = matrix[method]!;
    const got: Record<string, unknown> = {};
    let groupId: string | null = null;
    for (const role of roles) {
      groupId ??= await freshGroup();
      const answer = await gateway.call(method, params({ gateway, groupId }), bearers[role]);
      got[role] = answer.error ? answer.error.code : ok;
      // One role's success must not spoil the next one's question.
      if (!answer.error) {
        await gateway.call("group.delete", { group_id: groupId }, people.owner);
        groupId = null;
      }
    }
    expect(got).toEqual(Object.fromEntries(roles.map((role, index) => [role, gets[index]])));
  });

  test("a group that does not exist looks like one that is not yours", async () => {
    const nowhere = crypto.randomUUID();
    const groupId = await freshGroup();
    for (const [method, { params }] of Object.entries(matrix)) {
      const real = params({ gateway, groupId }) as Record<string, unknown>;
      if (!("group_id" in real)) continue;
      const answers = await Promise.all(
        [groupId, nowhere].map((group_id) => gateway.call(method, { ...real, group_id }, bearers.outsider)),
      );
      expect({ method, error: answers[0]!.error }).toEqual({ method, error: answers[1]!.error });
    }
    const asPlatform = await gateway.call("group.update", { group_id: nowhere }, people.platform);
    expect(asPlatform.error).toMatchObject({
      code: notFound,
      message: expect.stringContaining("Group not found"),
    });
  });

  test("a group made with the admin token is the platform's: its administrators own it", async () => {
    const { id, my_role, member_count } = await gateway.rpc("group.create", { name: "house" }, ADMIN_TOKEN);
    expect({ my_role, member_count }).toEqual({ my_role: null, member_count: 0 });
    expect((await gateway.call("group.delete", { group_id: id }, people.owner)).error.code).toBe(admin);
    await gateway.rpc(
      "group.members.add",
      { group_id: id, email: emailOf("owner"), role: "admin" },
      people.platform,
    );
    expect((await gateway.call("group.delete", { group_id: id }, people.owner)).error.code).toBe(admin);
    expect(await gateway.rpc("group.delete", { group_id: id }, people.platform)).toEqual({ ok: true });
  });
});
