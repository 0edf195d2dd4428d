import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { payerOf } from "../../src/rooms/keys/index.ts";
import { bootOn, emailOf, type GatewayOnDatabase, signInAll } from "../groups/support.ts";
import { settled } from "../support/inference.ts";

const POINTS = 500;
/** Of gpt-4o, at 2.50 USD a million. */
const PROMPT_TOKENS = 40_000;
const SPENT_POINTS = 10;

onEachDatabase("what a request has cost", (_, kind) => {
  let gateway: GatewayOnDatabase;
  let people: Record<"root" | "ben", string>;
  let group_id: string;
  beforeAll(async () => {
    gateway = await bootOn(kind);
    people = await signInAll(gateway, ["root", "ben"]);
    const { root } = people;
    ({ id: group_id } = await gateway.rpc("group.create", { name: "crew" }, root));
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben") }, root);
    // The first request is settled by a thread that has yet to start, which may take longer than readers wait.
    await spend({});
    await settled(gateway);
    await gateway.rpc("group.credits.topup", { group_id, points: 2 * POINTS }, root);
    const gift = { group_id, user_id: emailOf("ben"), points: POINTS };
    await gateway.rpc("group.credits.allocate", gift, root);
  });
  afterAll(() => gateway.stop());

  async function spend(params: Record<string, unknown>): Promise<void> {
    const { keys, metering } = gateway.app.rooms;
    const { key } = await gateway.rpc<{ key: string }>("keys.create", { name: "k", ...params }, people.ben);
    const payer = payerOf((await keys.authenticate(key))!);
    const bound = { promptTokens: PROMPT_TOKENS, outputTokensMax: 10, outputTokensMin: 10 };
    const requestId = Bun.randomUUIDv7();
    const admission = await metering.admit({ requestId, payer, model: "gpt-4o", bound, refId: null });
    admission.settle({
      backend: "gateway",
      promptTokens: PROMPT_TOKENS,
      completionTokens: 0,
      estimated: false,
    });
  }

  test("is gone from one's wallet at once", async () => {
    await spend({});
    const { balance, entries } = await gateway.rpc("ledger.self", {}, people.ben);
    expect(balance).toBe(POINTS - SPENT_POINTS);
    expect(entries[0]).toMatchObject({ kind: "settlement", points: -SPENT_POINTS });
  });

  test("is gone from the group's pool at once", async () => {
    await spend({ group_id });
    const left = POINTS - SPENT_POINTS;
    expect(await gateway.rpc("group.get", { group_id }, people.ben)).toMatchObject({ balance: left });
    await spend({ group_id });
    const { balance } = await gateway.rpc("group.credits.balance", { group_id }, people.root);
    expect(balance).toBe(left - SPENT_POINTS);
  });
});
