import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { kinds } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { bootOn, emailOf, signInAll } from "./support.ts";

describe.each(kinds)("groups on %s", (kind) => {
  let gateway: TestGateway;
  let people: Record<"root" | "ann" | "ben" | "cai", string>;
  beforeAll(async () => {
    gateway = await bootOn(kind);
    people = await signInAll(gateway, ["root", "ann", "ben", "cai"]);
  });
  afterAll(() => gateway.stop());

  const newGroup = async (params: Record<string, unknown> = {}): Promise<string> =>
    (await gateway.rpc("group.create", { name: "crew", ...params }, people.ann)).id;
  const refused = async (method: string, params: unknown, bearer: string) =>
    (await gateway.call(method, params, bearer)).error;

  test("a new group has its creator as owner and admin member", async () => {
    const group = await gateway.rpc("group.create", { name: " Crew ", description: "us" }, people.ann);
    expect(group).toEqual({
      id: expect.any(String),
      name: "Crew",
      description: "us",
      my_role: "owner",
      member_count: 1,
      enforce_model_allowlist: false,
      rpm_ceiling: null,
      balance: 0,
      monthly_refill: null,
      member_budget_usd: null,
      created_at: expect.any(String),
    });
    const { members } = await gateway.rpc("group.get", { group_id: group.id }, people.ann);
    expect(members).toEqual([
      {
        user_id: expect.any(String),
        email: emailOf("ann"),
        name: "ann",
        role: "admin",
        is_owner: true,
        cost_multiplier: 1,
        is_active: true,
        joined_at: group.created_at,
      },
    ]);
  });

  test("creating with an id is idempotent for the same caller and refused to another", async () => {
    const id = crypto.randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => gateway.rpc("group.create", { name: "same", id }, people.ann)),
    );
    expect(new Set(answers.map((group) => group.id))).toEqual(new Set([id]));
    expect(
      await gateway.rpc("group.create", { name: "renamed", id: id.toUpperCase() }, people.ann),
    ).toMatchObject({ id, name: "same", member_count: 1 });
    for (const other of [people.ben, people.root, ADMIN_TOKEN]) {
      const error = await refused("group.create", { name: "mine", id }, other);
      expect(error).toMatchObject({ code: -32000, message: expect.stringContaining("another group's") });
    }
    expect((await refused("group.create", { name: "x", id: "not-a-uuid" }, people.ann)).code).toBe(-32602);
    const house = crypto.randomUUID();
    const made = await gateway.rpc("group.create", { name: "house", id: house }, ADMIN_TOKEN);
    expect(await gateway.rpc("group.create", { name: "house", id: house }, ADMIN_TOKEN)).toEqual(made);
  });

  test("group.list shows the caller's groups; the admin token sees all", async () => {
    const id = await newGroup({ name: "listed" });
    await gateway.rpc("group.members.add", { group_id: id, email: emailOf("cai") }, people.ann);
    expect(await gateway.rpc("group.list", {}, people.cai)).toEqual([
      expect.objectContaining({ id, my_role: "member", member_count: 2, enforce_model_allowlist: false }),
    ]);
    const mine = await gateway.rpc("group.list", {}, people.ann);
    expect(mine.find((group: { id: string }) => group.id === id)).toMatchObject({ my_role: "owner" });
    const all = await gateway.rpc("group.list", {}, ADMIN_TOKEN);
    expect(all.length).toBeGreaterThan(mine.length);
    expect(all.find((group: { id: string }) => group.id === id)).toMatchObject({ my_role: null });
  });

  test("group.update changes what is given; null clears the ceiling", async () => {
    const group_id = await newGroup({ description: "before" });
    const update = (patch: Record<string, unknown>) =>
      gateway.rpc("group.update", { group_id, ...patch }, people.ann);
    expect(await update({ rpm_ceiling: 30, enforce_model_allowlist: true })).toMatchObject({
      name: "crew",
      description: "before",
      rpm_ceiling: 30,
      enforce_model_allowlist: true,
      my_role: "owner",
    });
    expect(await update({ name: "new name" })).toMatchObject({ name: "new name", rpm_ceiling: 30 });
    expect(await update({ rpm_ceiling: null })).toMatchObject({ rpm_ceiling: null, description: "before" });
    for (const bad of [{ rpm_ceiling: 0 }, { rpm_ceiling: 1.5 }, { name: "" }, { name: "x".repeat(81) }])
      expect((await refused("group.update", { group_id, ...bad }, people.ann)).code).toBe(-32602);
  });

  test("members.add is an upsert that changes what is given", async () => {
    const group_id = await newGroup();
    const add = (params: Record<string, unknown>) =>
      gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), ...params }, people.ann);
    expect(await add({})).toMatchObject({
      email: emailOf("ben"),
      role: "member",
      cost_multiplier: 1,
      is_active: true,
      is_owner: false,
    });
    expect(await add({ cost_multiplier: 1.25 })).toMatchObject({ role: "member", cost_multiplier: 1.25 });
    expect(await add({ role: "admin" })).toMatchObject({ role: "admin", cost_multiplier: 1.25 });
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("ben"), is_active: false },
      people.ann,
    );
    expect(await add({ email: emailOf("BEN").toUpperCase() })).toMatchObject({
      role: "admin",
      is_active: true,
    });
    const unknown = await refused("group.members.add", { group_id, email: "nobody@example.com" }, people.ann);
    expect(unknown).toMatchObject({ code: -32000, message: expect.stringContaining("group.invite.create") });
    for (const cost_multiplier of [0, -1, 1_001, "2"])
      expect(
        (await refused("group.members.add", { group_id, email: emailOf("ben"), cost_multiplier }, people.ann))
          .code,
      ).toBe(-32602);
  });

  describe("a multiplier below 1", () => {
    const multiplierOf = async (group_id: string, email: string): Promise<number> =>
      (await gateway.rpc("group.members.list", { group_id }, people.ann)).find(
        (member: { email: string }) => member.email === email,
      )?.cost_multiplier;

    test("is refused to every admin of the group, for themselves and for others", async () => {
      const group_id = await newGroup();
      await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "admin" }, people.ann);
      for (const bearer of [people.ann, people.ben]) {
        for (const name of ["ann", "ben"]) {
          for (const cost_multiplier of [0.000001, 0.5, 0.999999]) {
            const given = { group_id, cost_multiplier };
            for (const error of [
              await refused("group.members.add", { ...given, email: emailOf(name) }, bearer),
              await refused("group.members.update", { ...given, user_id: emailOf(name) }, bearer),
            ])
              expect(error).toMatchObject({
                code: -32007,
                message: expect.stringMatching(/cost_multiplier.*platform administrator/),
              });
          }
          expect(await multiplierOf(group_id, emailOf(name))).toBe(1);
        }
      }
    });

    test("is refused for someone who is not in yet, who then stays out", async () => {
      const group_id = await newGroup();
      const stranger = { group_id, email: emailOf("ben"), cost_multiplier: 0.1 };
      expect((await refused("group.members.add", stranger, people.ann)).code).toBe(-32007);
      expect(await multiplierOf(group_id, emailOf("ben"))).toBeUndefined();
    });

    test("is not had by an invitation either, whatever role it grants and whatever is added to the call", async () => {
      const group_id = await newGroup();
      const { token } = await gateway.rpc(
        "group.invite.create",
        { group_id, role: "admin", cost_multiplier: 0.1, costMultiplierMicros: 1 },
        people.ann,
      );
      await gateway.rpc("group.invite.accept", { token, cost_multiplier: 0.1 }, people.ben);
      expect(await multiplierOf(group_id, emailOf("ben"))).toBe(1);
      const self = { group_id, user_id: emailOf("ben"), cost_multiplier: 0.1 };
      expect((await refused("group.members.update", self, people.ben)).code).toBe(-32007);
    });

    test("given by a platform administrator stays until it is changed, and comes back only by one", async () => {
      const group_id = await newGroup();
      const ben = { group_id, user_id: emailOf("ben") };
      await gateway.rpc(
        "group.members.add",
        { group_id, email: emailOf("ben"), cost_multiplier: 0.5 },
        people.root,
      );
      const update = (patch: Record<string, unknown>) =>
        gateway.rpc("group.members.update", { ...ben, ...patch }, people.ann);
      // A form that sends every field back changes nothing.
      expect(await update({ role: "member", cost_multiplier: 0.5 })).toMatchObject({ cost_multiplier: 0.5 });
      expect(await update({ role: "admin" })).toMatchObject({ cost_multiplier: 0.5 });
      for (const cost_multiplier of [0.4, 0.6])
        expect((await refused("group.members.update", { ...ben, cost_multiplier }, people.ann)).code).toBe(
          -32007,
        );
      expect(await update({ cost_multiplier: 1 })).toMatchObject({ cost_multiplier: 1 });
      expect((await refused("group.members.update", { ...ben, cost_multiplier: 0.5 }, people.ann)).code).toBe(
        -32007,
      );
      const given = await gateway.rpc(
        "group.members.update",
        { ...ben, cost_multiplier: 0.000001 },
        people.root,
      );
      expect(given).toMatchObject({ cost_multiplier: 0.000001 });
      // Leaving and coming back does not bring it along.
      await gateway.rpc("group.members.remove", ben, people.ann);
      expect(
        await gateway.rpc("group.members.add", { group_id, email: emailOf("ben") }, people.ann),
      ).toMatchObject({ cost_multiplier: 1 });
    });
  });

  test("members are named by email or by user id; lists hide the inactive unless asked", async () => {
    const group_id = await newGroup();
    const { user_id } = await gateway.rpc(
      "group.members.add",
      { group_id, email: emailOf("ben") },
      people.ann,
    );
    const updated = await gateway.rpc(
      "group.members.update",
      { group_id, user_id, is_active: false, cost_multiplier: 2.5 },
      people.ann,
    );
    expect(updated).toMatchObject({ user_id, is_active: false, cost_multiplier: 2.5, role: "member" });
    const emails = async (params: Record<string, unknown> = {}) =>
      (await gateway.rpc("group.members.list", { group_id, ...params }, people.ann)).map(
        (member: { email: string }) => member.email,
      );
    expect(await emails()).toEqual([emailOf("ann")]);
    expect(await emails({ include_inactive: true })).toEqual([emailOf("ann"), emailOf("ben")]);
    expect(await gateway.rpc("group.get", { group_id }, people.ann)).toMatchObject({ member_count: 1 });
    await gateway.rpc("group.members.remove", { group_id, user_id: emailOf("ben") }, people.ann);
    expect(await emails({ include_inactive: true })).toEqual([emailOf("ann")]);
    for (const method of ["group.members.update", "group.members.remove"])
      expect(await refused(method, { group_id, user_id: emailOf("ben") }, people.ann)).toMatchObject({
        code: -32000,
        message: expect.stringContaining("not a member"),
      });
  });

  test("nobody can deactivate, demote or remove the owner, the owner included", async () => {
    const group_id = await newGroup();
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "admin" }, people.ann);
    const user_id = emailOf("ann");
    for (const bearer of [people.ann, people.ben, people.root]) {
      for (const [method, params] of [
        ["group.members.update", { is_active: false }],
        ["group.members.update", { role: "member" }],
        ["group.members.remove", {}],
      ] as const) {
        const error = await refused(method, { group_id, user_id, ...params }, bearer);
        expect(error).toMatchObject({ code: -32000, message: expect.stringContaining("owner") });
      }
      const demoted = { group_id, email: user_id, role: "member" };
      expect((await refused("group.members.add", demoted, bearer)).message).toContain("owner");
    }
    const changed = await gateway.rpc(
      "group.members.update",
      { group_id, user_id, cost_multiplier: 2, role: "admin", is_active: true },
      people.ben,
    );
    expect(changed).toMatchObject({ is_owner: true, role: "admin", is_active: true, cost_multiplier: 2 });
  });

  test("a demoted admin's rights end with the demotion", async () => {
    const group_id = await newGroup();
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "admin" }, people.ann);
    await gateway.rpc("group.update", { group_id, name: "by ben" }, people.ben);
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("ben"), role: "member" },
      people.ann,
    );
    expect((await refused("group.update", { group_id, name: "again" }, people.ben)).code).toBe(-32007);
  });

  test("a deleted group is gone with its members, and its id cannot come back with its history", async () => {
    const id = crypto.randomUUID();
    await newGroup({ id });
    await gateway.rpc("group.credits.topup", { group_id: id, points: 70 }, people.root);
    await gateway.rpc("group.delete", { group_id: id }, people.ann);
    expect((await refused("group.get", { group_id: id }, people.ann)).code).toBe(-32000);
    expect((await refused("group.create", { name: "again", id }, people.ben)).message).toContain("closed");
    expect((await refused("group.credits.topup", { group_id: id, points: 1 }, people.root)).code).toBe(
      -32000,
    );
  });
});
