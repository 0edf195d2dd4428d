import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { kinds } from "@model-gateway/testing/databases.ts";
import type { TestGateway } from "@model-gateway/testing/gateway.ts";
import { modelAllowed } from "../../src/rooms/groups/index.ts";
import { Keys, type Principal, payerOf } from "../../src/rooms/keys/index.ts";
import { bootOn, emailOf, keyWorks, signInAll } from "./support.ts";

describe.each(kinds)("keys of a group on %s", (kind) => {
  let gateway: TestGateway;
  let people: Record<"root" | "ann" | "ben" | "cai", string>;
  beforeAll(async () => {
    gateway = await bootOn(kind);
    people = await signInAll(gateway, ["root", "ann", "ben", "cai"]);
  });
  afterAll(() => gateway.stop());

  /** A group of ann's with ben in it, and a key of ben's for it. */
  async function crew() {
    const { id: group_id } = await gateway.rpc("group.create", { name: "crew" }, people.ann);
    await gateway.rpc(
      "group.members.add",
      { group_id, email: emailOf("ben"), cost_multiplier: 1.5 },
      people.ann,
    );
    const { key, id: keyId } = await gateway.rpc("keys.create", { name: "k", group_id }, people.ben);
    return { group_id, key, keyId } as { group_id: string; key: string; keyId: string };
  }
  const principal = async (key: string) => (await gateway.app.rooms.keys.authenticate(key)) as Principal;
  const setMember = (group_id: string, patch: Record<string, unknown>) =>
    gateway.rpc("group.members.update", { group_id, user_id: emailOf("ben"), ...patch }, people.ann);

  test("only an active member may make one", async () => {
    const { group_id } = await crew();
    const create = (bearer: string, id = group_id) =>
      gateway.call("keys.create", { name: "k", group_id: id }, bearer);
    expect((await create(people.cai)).error).toMatchObject({
      code: -32000,
      message: expect.stringContaining("group_id"),
    });
    expect((await create(people.root)).error.code).toBe(-32000);
    expect((await create(people.ben, crypto.randomUUID())).error.code).toBe(-32000);
    expect((await create(people.ben, group_id.toUpperCase())).result).toMatchObject({ group_id });
    await setMember(group_id, { is_active: false });
    expect((await create(people.ben)).error.code).toBe(-32000);
    expect(await gateway.rpc("keys.list", {}, people.cai)).toEqual([]);
  });

  test("carries the group's terms, which follow every change at once", async () => {
    const { group_id, key, keyId } = await crew();
    const personal = await gateway.rpc("keys.create", { name: "own", project: "p" }, people.ben);
    expect((await principal(personal.key)).group).toBeNull();
    expect(payerOf(await principal(personal.key))).toMatchObject({
      groupId: null,
      costMultiplierMicros: 1_000_000,
      rpmCeiling: null,
      project: "p",
    });

    const before = await principal(key);
    expect(payerOf(before)).toEqual({
      userId: before.userId,
      keyId,
      attribution: key.slice("service-".length, "service-".length + 8),
      project: "default",
      groupId: group_id,
      costMultiplierMicros: 1_500_000,
      rpmCeiling: null,
      keyLimits: null,
      tier: "free",
    });
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("ben"), cost_multiplier: 0.123456 },
      people.root,
    );
    await gateway.rpc(
      "group.update",
      { group_id, rpm_ceiling: 7, enforce_model_allowlist: true },
      people.ann,
    );
    await gateway.rpc("group.update", { group_id, member_budget_usd: 2 }, people.ann);
    expect(payerOf(await principal(key)).keyLimits).toMatchObject({ memberNanoUsd: 2e9 });
    await gateway.rpc("group.models.allow", { group_id, model_ids: ["Good-Model"] }, people.ann);
    await gateway.rpc("group.models.deny", { group_id, model_ids: ["bad"] }, people.ann);
    expect((await principal(key)).group).toEqual({
      id: group_id,
      multiplierMicros: 123_456,
      rpmCeiling: 7,
      enforceAllowlist: true,
      allowed: new Set(["good-model"]),
      denied: new Set(["bad"]),
    });
  });

  test("stops at once when its member is deactivated, and works again after reactivation", async () => {
    const { group_id, key } = await crew();
    expect(await keyWorks(gateway, key)).toBe(true);
    await setMember(group_id, { is_active: false });
    expect(await keyWorks(gateway, key)).toBe(false);
    await setMember(group_id, { is_active: true });
    expect(await keyWorks(gateway, key)).toBe(true);
    await gateway.rpc("group.members.remove", { group_id, user_id: emailOf("ben") }, people.ann);
    expect(await keyWorks(gateway, key)).toBe(false);
    const { token } = await gateway.rpc("group.invite.create", { group_id }, people.ann);
    await gateway.rpc("group.invite.accept", { token }, people.ben);
    expect(await keyWorks(gateway, key)).toBe(true);
    expect(payerOf(await principal(key)).costMultiplierMicros).toBe(1_000_000);
  });

  test("stops on every instance that shares the bus", async () => {
    const { group_id, key } = await crew();
    const other = new Keys(gateway.app.rooms.keys.options);
    expect(await other.authenticate(key)).toMatchObject({ group: { id: group_id } });
    await setMember(group_id, { is_active: false });
    expect(await other.authenticate(key)).toBeNull();
  });

  test("what was read before a change is not remembered after it", async () => {
    const { group_id, key } = await crew();
    const { keys } = gateway.app.rooms;
    const fresh = new Keys({
      ...keys.options,
      groups: {
        requireMember: async () => {},
        // The change comes in while the key is being looked up.
        modelSets: async () => {
          await setMember(group_id, { is_active: false });
          return { allowed: new Set(), denied: new Set() };
        },
      },
    });
    expect(await fresh.authenticate(key)).toMatchObject({ group: { id: group_id } });
    expect(await fresh.authenticate(key)).toBeNull();
  });

  test("when the group is deleted, active members' keys become personal and dead ones stay dead", async () => {
    const { group_id, key } = await crew();
    await gateway.rpc("group.members.add", { group_id, email: emailOf("cai") }, people.ann);
    const dead = await gateway.rpc("keys.create", { name: "dead", group_id }, people.cai);
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("cai"), is_active: false },
      people.ann,
    );
    await gateway.rpc("group.delete", { group_id }, people.ann);
    expect(await principal(key)).toMatchObject({ group: null });
    expect(await keyWorks(gateway, dead.key)).toBe(false);
    const listed = await gateway.rpc("keys.list", {}, people.cai);
    expect(listed.find(({ id }: { id: string }) => id === dead.id)).toMatchObject({
      active: false,
      group_id: null,
    });
  });

  test("lists: a denial wins in either order, and lifting it brings the permission back", async () => {
    const { group_id, key } = await crew();
    const models = (method: string, model_ids: string[], extra = {}) =>
      gateway.rpc(`group.models.${method}`, { group_id, model_ids, ...extra }, people.ann);
    const may = async (model: string) => modelAllowed((await principal(key)).group, model);

    expect(await may("anything")).toBe(true);
    expect(await models("deny", ["m-1", "m-1"])).toEqual({ allowed: [], denied: ["m-1"] });
    expect(await may("m-1")).toBe(false);
    expect(await may("M-1:latest")).toBe(false);
    expect(await may("m-1:8b")).toBe(true);
    expect(await models("allow", ["m-1", "m-2", "m-3:latest"])).toEqual({
      allowed: ["m-1", "m-2", "m-3:latest"],
      denied: ["m-1"],
    });
    expect(await may("anything")).toBe(true);
    await gateway.rpc("group.update", { group_id, enforce_model_allowlist: true }, people.ann);
    expect(await Promise.all(["anything", "m-1", "m-2", "m-3", "m-2:latest", "m-2:8b"].map(may))).toEqual([
      false,
      false,
      true,
      true,
      true,
      false,
    ]);
    await models("deny", ["M-1"], { remove: true });
    expect(await may("m-1")).toBe(true);
    await models("allow", ["m-1"], { remove: true });
    expect(await gateway.rpc("group.models.list", { group_id }, people.ann)).toEqual({
      allowed: ["m-2", "m-3:latest"],
      denied: [],
    });
    expect(await may("m-1")).toBe(false);
    expect(modelAllowed(null, "m-1")).toBe(true);
    for (const model_ids of [[], [""], "m", ["x".repeat(129)]])
      expect((await gateway.call("group.models.allow", { group_id, model_ids }, people.ann)).error.code).toBe(
        -32602,
      );
  });
});
