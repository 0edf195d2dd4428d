import { afterAll, beforeAll, expect, test } from "bun:test";
import { completion, startUpstream, USAGE } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
type Answer = any;

let bench: InferenceBench;
/** What the upstream says that it asks for a request. */
let cost: unknown;
const upstream = startUpstream({
  models: [],
  handler: (_, reply) => reply.json(completion("ok", { usage: { ...USAGE, cost } })),
});

beforeAll(async () => {
  bench = await bootInference({ config: { unpriced: "refuse" } });
  const { url } = upstream;
  await bench.addBackend({ name: "own", type: "vllm", url, models: ["gpt-oss-120b"] });
  await bench.addBackend({ name: "reseller", type: "external", url, models: ["sold"], believe_cost: true });
});
afterAll(async () => {
  upstream.stop();
  await bench.stop();
});

const rowOf = async (model: string) => {
  const answer = await bench.chat({ model });
  expect(answer.status).toBe(200);
  const id = answer.headers.get("x-request-id");
  const row = (await bench.usageRows()).find((each) => each.id === id);
  return { row, request: await bench.rpc("requests.get", { id }, bench.token) };
};
const priceOf = async (model: string, more = {}) =>
  (await bench.rpc("billing.prices.list", { models: [model], ...more }, bench.token))[0];

test("what own hardware serves is not billed, unless it is given a price", async () => {
  const { row, request } = await rowOf("gpt-oss-120b");
  expect(row).toMatchObject({ model: "gpt-oss-120b", cost: null, unpriced: false });
  expect(request).toMatchObject({ cost_usd: null, unpriced: false, backend: "own" });
  expect(await priceOf("gpt-oss-120b")).toMatchObject({ input_usd: null, unpriced: false, not_billed: true });
  // The vendors' price is for those who sell it, also before a server is registered.
  const asked = { models: ["gpt-oss-120b"], type: "cloud" };
  expect(await priceOf("gpt-oss-120b", asked)).toMatchObject({ input_usd: 0.15, not_billed: false });
  const { backends } = await bench.rpc("backends.list", {}, bench.token);
  const own = Object.fromEntries(backends.map((each: Answer) => [each.name, each.own_hardware]));
  expect(own).toMatchObject({ own: true, first: false, reseller: false });

  const price = { model: "gpt-oss-120b", input_usd: 1, output_usd: 2 };
  await bench.rpc("billing.prices.set", price, bench.token);
  expect((await rowOf("gpt-oss-120b")).row.cost).toBe((9 * 1 + 4 * 2) / 1e6);
  await bench.rpc("billing.prices.remove", { model: "gpt-oss-120b" }, bench.token);
});

test("a model without a price is shown as such, and refused to those who pay", async () => {
  const { row, request } = await rowOf("m");
  expect(row).toMatchObject({ cost: null, unpriced: true });
  expect(request).toMatchObject({ cost_usd: null, unpriced: true });
  expect(await priceOf("m")).toMatchObject({ unpriced: true, not_billed: false });
  const day = new Date().toISOString().slice(0, 10);
  const period = { since: day, until: day, by: "backend" };
  const { groups } = await bench.rpc("usage.series", period, bench.token);
  expect(groups.find(({ name }: Answer) => name === "first")).toMatchObject({ requests: 1, unpriced: 1 });
  expect(groups.find(({ name }: Answer) => name === "own")).toMatchObject({ unpriced: 0 });

  const bob = await bench.signIn("bob");
  const { key } = await bench.rpc("keys.create", { name: "bob's" }, bob);
  const headers = { authorization: `Bearer ${key}` };
  const refused = await bench.chat({ model: "m" }, { headers });
  expect(refused.status).toBe(403);
  const { error } = (await refused.json()) as Answer;
  expect(error.code).toBe("model_unpriced");
  expect(error.message).toContain("an administrator can set its price");
  expect((await bench.chat({ model: "gpt-oss-120b" }, { headers })).status).toBe(200);
});

test("an upstream's own cost is charged where the operator says so, and where it can be true", async () => {
  const costs: [reported: unknown, charged: number | null][] = [
    [0.0123, 0.0123],
    [0, 0],
    [101, null],
    [-1, null],
    ["1", null],
  ];
  for (const [reported, charged] of costs) {
    cost = reported;
    expect((await rowOf("sold")).row).toMatchObject({ cost: charged, unpriced: charged === null });
  }
  await bench.rpc("billing.prices.set", { model: "sold", input_usd: 1, output_usd: 1 }, bench.token);
  for (const [reported, charged] of [
    [100e-6, 100e-6],
    [131e-6, 13e-6],
  ]) {
    cost = reported;
    expect((await rowOf("sold")).row.cost).toBe(charged);
  }
  // Others are not believed.
  cost = 5;
  expect((await rowOf("gpt-oss-120b")).row.cost).toBeNull();
  await bench.rpc("backends.update", { name: "reseller", believe_cost: false }, bench.token);
  cost = 100e-6;
  expect((await rowOf("sold")).row.cost).toBe(13e-6);
});
