import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import { payerOf } from "../../src/rooms/keys/index.ts";
import { bootOn, type GatewayOnDatabase } from "../groups/support.ts";

interface Listed {
  records: Record<string, unknown>[];
  total: number;
  limit: number;
  offset: number;
  project: string | null;
}

onEachDatabase("usage.list", (_, kind) => {
  let gateway: GatewayOnDatabase;
  let ann: string;
  let bob: string;
  const requestIds: string[] = [];

  const keyPayer = async (token: string, project?: string): Promise<Payer> => {
    const { key } = await gateway.rpc<{ key: string }>("keys.create", { name: "k", project }, token);
    return payerOf((await gateway.app.rooms.keys.authenticate(key))!);
  };
  const personPayer = async (token: string): Promise<Payer> => {
    const { id } = await gateway.rpc<{ id: string }>("auth.me", {}, token);
    return gateway.app.rooms.metering.payerOf({ userId: id });
  };
  const use = async (who: Payer, refId: string | null = null): Promise<void> => {
    const requestId = Bun.randomUUIDv7();
    requestIds.push(requestId);
    const bound = { promptTokens: 10, outputTokensMax: 10, outputTokensMin: 10 };
    const admission = await gateway.app.rooms.metering.admit({
      requestId,
      payer: who,
      model: "gpt-4o",
      bound,
      refId,
    });
    admission.settle({ backend: "gateway", promptTokens: 10, completionTokens: 4, estimated: true });
  };
  const list = (params: unknown, token: string) => gateway.rpc<Listed>("usage.list", params, token);

  beforeAll(async () => {
    gateway = await bootOn(kind);
    ann = await gateway.signIn("ann");
    bob = await gateway.signIn("bob");
    const payers = [await keyPayer(ann), await keyPayer(ann, "web"), await personPayer(ann)];
    for (const who of payers) await use(who, who.project === "web" ? "tag" : null);
    await use(await keyPayer(bob, "web"));
  });
  afterAll(() => gateway.stop());

  test("has the rows of one's keys and one's own, newest first, and sees them at once", async () => {
    const { records, ...rest } = await list({}, ann);
    expect(rest).toEqual({ total: 3, limit: 50, offset: 0, project: null });
    expect(records.map(({ id }) => id).toSorted()).toEqual(requestIds.slice(0, 3));
    expect(records.find(({ ref_id }) => ref_id === "tag")).toEqual({
      id: requestIds[1],
      model: "gpt-4o",
      backend: "gateway",
      prompt_tokens: 10,
      completion_tokens: 4,
      total_tokens: 14,
      cost: 0.000065,
      unpriced: false,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      ref_id: "tag",
      api_key_id: expect.stringMatching(/^[0-9a-f]{8}$/),
      project: "web",
      points: null,
      account_type: null,
      estimated: true,
    });
  });

  test("a project narrows to its keys and leaves a person's own rows out", async () => {
    expect(await list({ project: "web" }, ann)).toMatchObject({
      total: 1,
      project: "web",
      records: [{ id: requestIds[1] }],
    });
    expect(await list({ project: "default" }, ann)).toMatchObject({
      total: 1,
      records: [{ id: requestIds[0] }],
    });
    expect(await list({ project: " web " }, ann)).toMatchObject({ total: 1, project: "web" });
    expect(await list({ project: "none" }, ann)).toMatchObject({ total: 0, records: [] });
    const { records, ...rest } = await list({ project: "" }, ann);
    expect([records.length, rest]).toEqual([3, { total: 3, limit: 50, offset: 0, project: null }]);
  });

  test("shows nobody else's rows", async () => {
    expect((await list({}, bob)).records.map(({ id }) => id)).toEqual([requestIds[3]!]);
    expect((await gateway.call("usage.list", {})).error.code).toBe(-32005);
  });

  test("pages, with limits brought into 1-200", async () => {
    const first = await list({ limit: 2 }, ann);
    const rest = await list({ limit: 2, offset: 2 }, ann);
    expect([first.records.length, rest.records.length, rest.offset]).toEqual([2, 1, 2]);
    for (const [given, used] of [
      [0, 1],
      [-1, 1],
      [1000, 200],
      [2 ** 63, 200],
      [-(2 ** 63), 1],
    ]) {
      expect((await list({ limit: given }, ann)).limit).toBe(used!);
    }
    expect((await list({ offset: -3 }, ann)).offset).toBe(0);
    expect((await list({ offset: 2 ** 63 }, ann)).records).toEqual([]);
    expect((await gateway.call("usage.list", { limit: 1.5 }, ann)).error.code).toBe(-32602);
  });

  test("rows keep the account and the key that they belong to", async () => {
    const rows = await gateway.app.rooms.usage.store.db.all<Record<string, unknown>>(
      "SELECT id, api_key_id, key_id, project, points, account_type, estimated FROM usage_records ORDER BY id",
    );
    const mine = await gateway.rpc<{ id: string }>("auth.me", {}, ann);
    const keys = await gateway.rpc<{ id: string; key_prefix: string; project: string }[]>(
      "keys.list",
      {},
      ann,
    );
    const web = keys.find(({ project }) => project === "web")!;
    expect(rows.find(({ id }) => id === requestIds[1])).toMatchObject({
      api_key_id: web.key_prefix,
      key_id: web.id,
      project: "web",
      points: null,
      account_type: null,
    });
    expect(rows.find(({ id }) => id === requestIds[2])).toMatchObject({
      api_key_id: `jwt-${mine.id}`,
      key_id: null,
      project: null,
    });
  });
});
