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
    expect(poolStatement).toMatchObject({
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
      debt: 0,
      debts: [],
      debt_entries: [],
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

  test("a monthly refill fills the pool up: at once, and once in each month", async () => {
    const group_id = await funded(10);
    const refill = (bearer: string) =>
      gateway.call("group.update", { group_id, monthly_refill: 100 }, bearer);
    expect((await refill(people.ann)).error.code).toBe(-32007);
    expect((await refill(people.root)).result).toMatchObject({ balance: 100, monthly_refill: 100 });
    await allocate(group_id, 70);
    const { groups } = gateway.app.rooms;
    const nextMonth = Date.now() + 32 * 86_400_000;
    await groups.sweepRefills(Date.now(), 10);
    expect((await gateway.rpc("group.get", { group_id }, people.ben)).balance).toBe(30);
    await Promise.all([groups.sweepRefills(nextMonth, 10), groups.sweepRefills(nextMonth, 10)]);
    const { balance, entries } = await gateway.rpc("group.credits.balance", { group_id }, people.ann);
    expect(balance).toBe(100);
    expect(entries[0]).toMatchObject({ kind: "topup", points: 70, note: "monthly refill" });
    await gateway.rpc("group.update", { group_id, monthly_refill: null }, people.root);
  });

  describe("redemption codes", () => {
    const make = async (params: object = {}): Promise<{ id: string; codes: string[] }> =>
      gateway.rpc("codes.create", { count: 2, points: 7, note: "welcome", ...params }, people.root);
    const redeem = (code: string, bearer: string, group_id?: string) =>
      gateway.call("codes.redeem", { code, ...(group_id && { group_id }) }, bearer);
    const REFUSED = expect.objectContaining({ message: expect.stringContaining("redeemed before") });

    test("each gives its points once, to one of all who try at the same time", async () => {
      const { id, codes } = await make();
      const before = (await walletOf(people.ben)) + (await walletOf(people.cai));
      const tries = Array.from({ length: 10 }, (_, n) => redeem(codes[0]!, n % 2 ? people.ben : people.cai));
      const answers = await Promise.all(tries);
      expect(answers.filter(({ error }) => !error)).toHaveLength(1);
      expect((await walletOf(people.ben)) + (await walletOf(people.cai))).toBe(before + 7);
      const batches = await gateway.rpc("codes.list", {}, people.root);
      expect(batches.find((batch: { id: string }) => batch.id === id)).toMatchObject({
        codes: 2,
        redeemed: 1,
      });
      expect(JSON.stringify(batches)).not.toContain(codes[1]!);
      const group_id = await funded(1);
      expect((await redeem(codes[1]!, people.cai, group_id)).error.message).toContain("Group not found");
      expect((await redeem(codes[1]!, people.ben, group_id)).result).toEqual({ points: 7, balance: 8 });
      const { entries } = await gateway.rpc("group.credits.balance", { group_id }, people.ann);
      expect(entries[0]).toMatchObject({ kind: "topup", points: 7, note: "welcome" });
    });

    test("one that is revoked, expired or made by someone who may not issue points gives nothing", async () => {
      const db = gateway.app.rooms.ledger.options.db;
      const revoked = await make();
      await gateway.rpc("codes.revoke", { id: revoked.id }, people.root);
      const old = await make();
      await db.run("UPDATE redemption_codes SET expires_at = created_at WHERE batch_id = $1", [old.id]);
      const { id: ann } = await gateway.rpc("auth.me", {}, people.ann);
      const rights = (is_admin: boolean) =>
        gateway.rpc("users.update", { user_id: ann, is_admin }, people.root);
      await rights(true);
      const former = await gateway.rpc("codes.create", { count: 1, points: 5 }, people.ann);
      await rights(false);
      await rights(true);
      await rights(false);
      for (const code of [revoked.codes[0]!, old.codes[0]!, former.codes[0]!, "points-x"])
        expect((await redeem(code, people.ben)).error).toEqual(REFUSED);
      expect((await gateway.call("codes.create", { count: 1, points: 5 }, people.ben)).error.code).toBe(
        -32007,
      );
    });
  });

  test("deleting while points come and go loses none", async () => {
    const group_id = await funded(50);
    const before = (await gateway.rpc("ledger.self", {}, ADMIN_TOKEN)).balance as number;
    const beforeBen = await walletOf(people.ben);
    // Points that are being moved are held, so that it may take more than one attempt.
    const remove = async () => {
      while ((await gateway.call("group.delete", { group_id }, people.ann)).error) await Bun.sleep(1);
    };
    const work: Promise<unknown>[] = Array.from({ length: 12 }, (_, n) => {
      if (n === 6) return remove();
      if (n % 2) return gateway.call("group.credits.topup", { group_id, points: 5 }, people.root);
      return allocate(group_id, 4);
    });
    await Promise.all(work);
    const after = (await gateway.rpc("ledger.self", {}, ADMIN_TOKEN)).balance as number;
    // Everything that is not with ben went back.
    expect(after).toBe(before + 50 - ((await walletOf(people.ben)) - beforeBen));
  });
});
