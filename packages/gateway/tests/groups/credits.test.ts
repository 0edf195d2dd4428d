import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { kinds } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { bootOn, emailOf, signInAll } from "./support.ts";

describe.each(kinds)("credits of a group on %s", (kind) => {
  let gateway: TestGateway;
  let people: Record<"root" | "ann" | "ben" | "cai", string>;
  beforeAll(async () => {
    gateway = await bootOn(kind);
    people = await signInAll(gateway, ["root", "ann", "ben", "cai"]);
  });
  afterAll(async () => {
    const { problems } = await verifyLedger(gateway.app.rooms.ledger.options.db);
    await gateway.stop();
    expect(problems).toEqual([]);
  });

  async function funded(points: number): Promise<string> {
    const { id } = await gateway.rpc("group.create", { name: "crew" }, people.ann);
    await gateway.rpc("group.members.add", { group_id: id, email: emailOf("ben") }, people.ann);
    await gateway.rpc("group.credits.topup", { group_id: id, points, note: "seed" }, people.root);
    return id;
  }
  const allocate = (group_id: string, points: number, user = "ben") =>
    gateway.call(
      "group.credits.allocate",
      { group_id, user_id: emailOf(user), points, note: "for you" },
      people.ann,
    );
  const walletOf = async (bearer: string) => (await gateway.rpc("ledger.self", {}, bearer)).balance as number;

  test("a wallet that was never used is empty", async () => {
    const { balance, entries, account } = await gateway.rpc("ledger.self", {}, people.cai);
    expect({ balance, entries, type: account.type }).toEqual({ balance: 0, entries: [], type: "user" });
  });

  test("topup, allocate, and both sides' entries", async () => {
    const group_id = await funded(100);
    const before = await walletOf(people.ben);
    expect((await allocate(group_id, 30)).result).toEqual({
      group_id,
      user: emailOf("ben"),
      points: 30,
      balance: 70,
    });
    const poolStatement = await gateway.rpc("group.credits.balance", { group_id }, people.ann);
    const ben = await gateway.rpc("ledger.self", {}, people.ben);
    expect(poolStatement).toEqual({
      group_id,
      balance: 70,
      entries: [
        {
          seq: 2,
          kind: "allocation",
          points: -30,
          balance_after: 70,
          counterparty: ben.account,
          request_id: null,
          note: "for you",
          created_at: expect.any(String),
        },
        expect.objectContaining({
          seq: 1,
          kind: "topup",
          points: 100,
          note: "seed",
          counterparty: { type: "system", id: "issued" },
        }),
      ],
    });
    expect(ben.balance).toBe(before + 30);
    expect(ben.entries[0]).toMatchObject({
      kind: "allocation",
      points: 30,
      counterparty: { type: "group", id: group_id },
    });
    expect(JSON.stringify([poolStatement, ben])).not.toMatch(/actor|movement_id|remainder/);
  });

  test("an allocation that the pool cannot cover is refused whole, also when many come at once", async () => {
    const group_id = await funded(10);
    const before = await walletOf(people.ben);
    const short = await allocate(group_id, 11);
    expect(short.error).toMatchObject({ code: -32000, message: expect.stringContaining("fewer than 11") });
    const answers = await Promise.all(Array.from({ length: 30 }, () => allocate(group_id, 3)));
    expect(answers.filter(({ error }) => !error)).toHaveLength(3);
    expect((await gateway.rpc("group.credits.balance", { group_id }, people.ann)).balance).toBe(1);
    expect(await walletOf(people.ben)).toBe(before + 9);
  });

  test("points go to active members only", async () => {
    const group_id = await funded(10);
    expect((await allocate(group_id, 1, "cai")).error.message).toContain("not an active member");
    expect((await allocate(group_id, 1, "nobody")).error.code).toBe(-32000);
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("ben"), is_active: false },
      people.ann,
    );
    expect((await allocate(group_id, 1)).error.message).toContain("not an active member");
    expect((await gateway.rpc("group.credits.balance", { group_id }, people.ann)).balance).toBe(10);
  });

  test.each([0, -5, 1.5, "10", 2 ** 53, 1e300, null, true])("%p points are refused", async (points) => {
    const group_id = await funded(1);
    for (const [method, params, bearer] of [
      ["group.credits.topup", { group_id, points }, people.root],
      ["group.credits.allocate", { group_id, points, user_id: emailOf("ben") }, people.ann],
    ] as const) {
      const { error } = await gateway.call(method, params, bearer);
      expect(error).toMatchObject({ code: -32602, data: { fields: expect.arrayContaining(["points"]) } });
    }
  });

  test("a deleted group's points go back to where they came from, by an entry", async () => {
    const issued = async () => gateway.rpc("ledger.self", {}, ADMIN_TOKEN);
    const { balance: before, account } = await issued();
    expect(account).toEqual({ type: "system", id: "issued" });
    const group_id = await funded(40);
    await allocate(group_id, 15);
    await gateway.rpc("group.delete", { group_id }, people.ann);
    const after = await issued();
    expect(after.balance).toBe(before - 15);
    expect(after.entries[0]).toMatchObject({
      kind: "return",
      points: 25,
      counterparty: { type: "group", id: group_id },
    });
  });

  test("deleting while points come and go loses none", async () => {
    const group_id = await funded(50);
    const before = (await gateway.rpc("ledger.self", {}, ADMIN_TOKEN)).balance as number;
    const beforeBen = await walletOf(people.ben);
    const work = Array.from({ length: 12 }, (_, n) => {
      if (n === 6) return gateway.call("group.delete", { group_id }, people.ann);
      if (n % 2) return gateway.call("group.credits.topup", { group_id, points: 5 }, people.root);
      return allocate(group_id, 4);
    });
    await Promise.all(work);
    const after = (await gateway.rpc("ledger.self", {}, ADMIN_TOKEN)).balance as number;
    // Everything that is not with ben went back.
    expect(after).toBe(before + 50 - ((await walletOf(people.ben)) - beforeBen));
  });
});
