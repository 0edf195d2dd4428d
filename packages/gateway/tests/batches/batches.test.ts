import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { politeHandler } from "@model-gateway/testing/upstream.ts";
import OpenAI, { toFile } from "openai";
import type { Batches } from "../../src/rooms/batches/index.ts";
import { insertRow } from "../../src/storage/contract.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let client: OpenAI;
const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${bench.url}/v1`, apiKey, maxRetries: 0 });

beforeAll(async () => {
  bench = await bootInference({ config: { drainGraceMs: 0 }, upstream: { models: ["m", "busy"] } });
  await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url, batches: true });
  const parts = { batch: { input: 50, output: 100 } };
  await bench.rpc("billing.prices.set", { model: "m", input_usd: 100, output_usd: 200, parts }, bench.token);
  client = clientOf(bench.key);
});
afterAll(() => bench.stop());
afterEach(() => bench.upstream.answer(politeHandler));

const NARROW = { type: "external", batches: true, concurrency: 1 };
const CHATS = "/v1/chat/completions";
const said = (content: string, more = {}) => ({
  model: "m",
  max_tokens: 50,
  messages: [{ role: "user", content }],
  ...more,
});
const line = (custom_id: string, body: object, url = CHATS) => ({ custom_id, method: "POST", url, body });
const upload = (lines: readonly unknown[], by = client) => {
  const text = lines.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join("\n");
  return toFile(Buffer.from(text), "in.jsonl").then((file) => by.files.create({ file, purpose: "batch" }));
};
async function create(lines: readonly unknown[], endpoint: string = CHATS, by = client) {
  const { id } = await upload(lines, by);
  return by.batches.create({
    input_file_id: id,
    endpoint: endpoint as "/v1/responses",
    completion_window: "24h",
  });
}
/** The client's promises are its own. */
const refusalOf = (asked: PromiseLike<unknown>) => Promise.resolve(asked).then(() => "answered", String);
const ENDED = ["completed", "failed", "expired", "cancelled"];
async function ended(id: string, by = client) {
  let batch = await by.batches.retrieve(id);
  await until("the batch has ended", async () => {
    batch = await by.batches.retrieve(id);
    return ENDED.includes(batch.status);
  });
  return batch;
}
// biome-ignore lint/suspicious/noExplicitAny: tests look into lines freely
async function linesOf(fileId: string | null | undefined, by = client): Promise<any[]> {
  const text = await (await by.files.content(fileId!)).text();
  return text
    .trim()
    .split("\n")
    .map((each) => JSON.parse(each));
}

test("every line is answered, charged once at the batch price, and found in the output", async () => {
  const batch = await create([line("a", said("one")), line("b", said("two"))]);
  expect(batch).toMatchObject({ object: "batch", status: "in_progress", request_counts: { total: 2 } });
  const done = await ended(batch.id);
  expect(done).toMatchObject({ status: "completed", request_counts: { total: 2, completed: 2, failed: 0 } });
  expect(done.error_file_id).toBeNull();
  const output = await linesOf(done.output_file_id);
  expect(output.map(({ custom_id, response, error }) => [custom_id, response.status_code, error])).toEqual([
    ["a", 200, null],
    ["b", 200, null],
  ]);
  expect(output[1].response.body.choices[0].message.content).toBe("two");
  const rows = (await bench.usageRows()).filter(({ ref_id }) => `batch_${ref_id}` === batch.id);
  const lineUsd = (9 * 50 + 4 * 100) / 1e6;
  expect(rows.map(({ cost }) => cost)).toEqual([lineUsd, lineUsd]);
  expect((done as unknown as { cost_usd: number }).cost_usd).toBeCloseTo(2 * lineUsd, 9);
  const file = await client.files.retrieve(done.output_file_id!);
  expect(file.bytes).toBe((await (await client.files.content(file.id)).bytes()).length);
  expect((await client.batches.list()).data.map(({ id }) => id)).toContain(batch.id);
  expect((await client.files.list()).data.map(({ id }) => id)).toContain(file.id);
  expect(await client.files.delete(file.id)).toMatchObject({ deleted: true });
  expect(await refusalOf(client.files.content(file.id))).toContain("404");
});

test.each([
  ["/v1/responses", { model: "m", input: "hi", max_output_tokens: 20 }, "output"],
  ["/v1/messages", { model: "m", max_tokens: 20, messages: [{ role: "user", content: "hi" }] }, "content"],
  ["/v1/embeddings", { model: "m", input: "hi" }, "data"],
])("%s has batches, too", async (endpoint, body, member) => {
  const { id } = await create([line("a", body, endpoint)], endpoint);
  const [answer] = await linesOf((await ended(id)).output_file_id);
  expect(answer.response.body[member]).toBeArray();
});

test("what is wrong with the lines is told by their numbers, and nothing runs", async () => {
  const asked = bench.upstream.requests.length;
  const batch = await create([
    line("a", said("x")),
    "{",
    line("a", said("x")),
    { ...line("b", said("x")), method: "GET" },
    line("c", said("x"), "/v1/embeddings"),
    line("d", said("x", { stream: true })),
    line("e", said("x", { model: "nobody-has-it" })),
    line("f", { model: "m" }),
    JSON.stringify(line("g", said("DEEP"))).replace('"DEEP"', "[".repeat(60_000) + "]".repeat(60_000)),
  ]);
  expect(batch.status).toBe("failed");
  expect(batch.errors!.data!.map((error) => [error.line, error.param])).toEqual([
    [2, null],
    [3, "custom_id"],
    [4, "method"],
    [5, "url"],
    [6, "body.stream"],
    [7, "body"],
    [8, "body"],
    [9, null],
  ]);
  expect(bench.upstream.requests).toHaveLength(asked);
  expect((await create([]).catch(String)) as unknown).toMatchObject({ status: "failed" });
});

test.each([
  ["purpose", ["purpose", "file"], ["purpose"]],
  ["file", ["purpose", "file"], ["file"]],
  ["file", ["purpose"], []],
])("a form with no `%s`, or two, is refused", async (named, once, twice) => {
  const form = new FormData();
  for (const name of [...once, ...twice])
    form.append(name, name === "file" ? new File(["{}"], "in.jsonl") : "batch");
  const headers = { authorization: `Bearer ${bench.key}` };
  const answer = await fetch(`${bench.url}/v1/files`, { method: "POST", headers, body: form });
  expect([answer.status, (await answer.json()).error.message]).toEqual([
    400,
    expect.stringContaining(`\`${named}\``),
  ]);
});

test("what a line is refused by its upstream is in the error file, and costs nothing", async () => {
  bench.upstream.answer((request, reply) =>
    request.json.messages[0].content === "bad"
      ? reply.json({ error: { message: "no such thing" } }, 400)
      : politeHandler(request, reply),
  );
  const { id } = await create([line("good", said("good")), line("bad", said("bad"))]);
  const done = await ended(id);
  expect(done).toMatchObject({ status: "completed", request_counts: { completed: 1, failed: 1 } });
  const [failed] = await linesOf(done.error_file_id);
  expect(failed.custom_id).toBe("bad");
  expect(failed.response.body.error.message).toContain("no such thing");
  expect(await linesOf(done.output_file_id)).toHaveLength(1);
});

test("others see nothing of it, and neither does a key with limits that did not make it", async () => {
  const { id, input_file_id } = await create([line("a", said("x"))]);
  await ended(id);
  const token = await bench.signIn("bob");
  const { key } = await bench.rpc("keys.create", { name: "bob" }, token);
  const limited = await bench.rpc("keys.create", { name: "limited", allowed_models: ["m"] }, bench.token);
  for (const other of [clientOf(key), clientOf(limited.key)]) {
    expect(await refusalOf(other.batches.retrieve(id))).toContain("404");
    expect(await refusalOf(other.batches.cancel(id))).toContain("404");
    expect(await refusalOf(other.files.content(input_file_id))).toContain("404");
    expect(await refusalOf(other.files.delete(input_file_id))).toContain("404");
    expect((await other.batches.list()).data).toEqual([]);
  }
  expect((await bench.rpc("batches.list", {}, token)).batches).toEqual([]);
  expect((await bench.call("batches.cancel", { batch_id: id }, token)).error.message).toContain("No batch");
});

test("a batch that cannot be paid as a whole is refused, and one that can holds it", async () => {
  const token = await bench.signIn("poor");
  // Where several processes hold for a batch, it is asked more often than the free tier may.
  await bench.rpc("billing.plan.set", { user_email: "poor@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const { key } = await bench.rpc("keys.create", { name: "poor", monthly_budget_usd: 0.01 }, token);
  const poor = clientOf(key);
  // 50 tokens of an answer at the batch price are 0.005 dollars.
  const lines = ["a", "b", "c", "d"].map((id) => line(id, said("x")));
  expect(await refusalOf(create(lines, CHATS, poor))).toContain("budget");
  const released = Promise.withResolvers<void>();
  bench.upstream.answer(async (request, reply) => {
    await released.promise;
    return politeHandler(request, reply);
  });
  const { id } = await create(lines.slice(0, 1), CHATS, poor);
  expect(await refusalOf(poor.chat.completions.create(said("live", { max_tokens: 40 }) as never))).toContain(
    "budget",
  );
  released.resolve();
  expect((await ended(id, poor)).status).toBe("completed");
  bench.upstream.answer(politeHandler);
  await until("the hold has ended", async () => {
    const live = poor.chat.completions.create(said("live", { max_tokens: 20 }) as never);
    return live.then(() => true).catch(() => false);
  });
  await bench.rpc("billing.plan.set", { user_email: "poor@example.com", tier: "free" }, ADMIN_TOKEN);
});

test("cancelled: what was sent is answered and charged, the rest is not sent", async () => {
  const released = Promise.withResolvers<void>();
  bench.upstream.answer(async (request, reply) => {
    await released.promise;
    return politeHandler(request, reply);
  });
  const ids = Array.from({ length: 12 }, (_, index) => `line ${index}`);
  const { id } = await create(ids.map((each) => line(each, said(each))));
  const asked = () => bench.upstream.requests.filter(({ text }) => text.includes("line ")).length;
  await until("as many as are idle are under way", () => asked() === 8);
  expect((await client.batches.cancel(id)).status).toBe("cancelling");
  released.resolve();
  const done = await ended(id);
  expect(done).toMatchObject({ status: "cancelled", request_counts: { total: 12, completed: 8, failed: 4 } });
  expect((await linesOf(done.error_file_id))[0].error.code).toBe("batch_cancelled");
  expect(asked()).toBe(8);
  expect((await client.batches.cancel(id)).status).toBe("cancelled");
});

test("a line passes as it was written: long numbers keep their digits", async () => {
  const text = JSON.stringify(line("a", said("digits", { seed: 0 })));
  const { id } = await create([text.replace('"seed":0', '"seed": 12345678901234567890')]);
  expect((await ended(id)).status).toBe("completed");
  const sent = bench.upstream.requests.find((request) => request.text.includes("digits"))!;
  expect(sent.text).toContain('"seed": 12345678901234567890');
});

test("what batches come to counts: who has all that is kept of one begins none, and sends no more lines", async () => {
  const { db } = bench.app.rooms.usage.store;
  const [{ id: keyId }] = await bench.rpc("keys.list", {}, bench.token);
  const big = { id: crypto.randomUUID(), user_id: bench.userId, key_id: keyId, batch_id: null };
  const fill = () =>
    insertRow(db, "files", {
      ...{ ...big, purpose: "batch", filename: "big", bytes: 1024 ** 3 },
      ...{ created_at: new Date().toISOString(), expires_at: "2999-01-01T00:00:00.000Z" },
    });
  const released = Promise.withResolvers<void>();
  bench.upstream.answer(async (request, reply) => {
    await released.promise;
    return politeHandler(request, reply);
  });
  const asked = () => bench.upstream.requests.filter(({ text }) => text.includes("large ")).length;
  const { id: unused } = await upload([line("a", said("x"))]);
  const { id } = await create(Array.from({ length: 12 }, (_, at) => line(`${at}`, said(`large ${at}`))));
  await until("as many as are idle are under way", () => asked() === 8);
  await fill();
  try {
    released.resolve();
    const done = await ended(id);
    expect(done).toMatchObject({ status: "cancelled", request_counts: { completed: 8, failed: 4 } });
    expect((await linesOf(done.error_file_id))[0].error.code).toBe("storage_full");
    const again = client.batches.create({
      ...{ input_file_id: unused, endpoint: CHATS, completion_window: "24h" },
    });
    expect(await refusalOf(again)).toContain("delete some");
  } finally {
    await db.run("DELETE FROM files WHERE id = $1", [big.id]);
  }
  expect(asked()).toBe(8);
});

test("a revoked key ends its batches", async () => {
  bench.upstream.answer((_, reply) => reply.json({ error: { message: "full" } }, 429));
  const made = await bench.rpc("keys.create", { name: "short-lived" }, bench.token);
  const { id } = await create([line("a", said("x"))], CHATS, clientOf(made.key));
  await bench.rpc("keys.revoke", { key_id: made.id }, bench.token);
  const done = await ended(id);
  expect(done.status).toBe("cancelled");
  expect((await linesOf(done.error_file_id))[0].error.message).toContain("revoked");
});

test("what was sent when its key is revoked is owed, with what the model can have written by then", async () => {
  bench.upstream.answer(() => {});
  const made = await bench.rpc("keys.create", { name: "burnt" }, bench.token);
  const { id } = await create([line("a", said("it thinks"))], CHATS, clientOf(made.key));
  await until("it is sent", () => bench.upstream.requests.at(-1)!.text.includes("it thinks"));
  await bench.rpc("keys.revoke", { key_id: made.id }, bench.token);
  expect((await ended(id)).status).toBe("cancelled");
  const [row, ...more] = (await bench.usageRows()).filter(({ ref_id }) => `batch_${ref_id}` === id);
  expect(more).toEqual([]);
  expect(row.completion_tokens).toBeGreaterThan(0);
  expect(row.cost).toBeCloseTo((row.prompt_tokens * 50 + row.completion_tokens * 100) / 1e6, 9);
});

// What runs on a backend is each process's own count.
inOneProcess("on own hardware a live request takes the place of a line, which runs again", async () => {
  await bench.addBackend({
    ...NARROW,
    type: "vllm",
    url: bench.upstream.url,
    name: "narrow",
    models: ["one"],
  });
  let isSlow = true;
  bench.upstream.answer(async (request, reply) => {
    if (request.text.includes("a line") && isSlow) return;
    return politeHandler(request, reply);
  });
  const { id } = await create([line("a", said("a line", { model: "one" }))]);
  const asked = () => bench.upstream.requests.filter(({ text }) => text.includes("a line"));
  await until("the line is under way", () => asked().length === 1);
  isSlow = false;
  const live = await client.chat.completions.create(said("live", { model: "one" }) as never);
  expect(live).toMatchObject({ object: "chat.completion" });
  const done = await ended(id);
  expect(done.request_counts).toMatchObject({ completed: 1 });
  expect(asked()).toHaveLength(2);
  const rows = (await bench.usageRows()).filter(({ ref_id }) => `batch_${ref_id}` === id);
  expect(rows).toHaveLength(1);
});

test("what a vendor was sent, and bills, is not stopped by a live request", async () => {
  await bench.addBackend({ ...NARROW, url: bench.upstream.url, name: "vendor", models: ["billed"] });
  const released = Promise.withResolvers<void>();
  bench.upstream.answer(async (request, reply) => {
    if (request.text.includes("a billed line")) await released.promise;
    return politeHandler(request, reply);
  });
  const { id } = await create([line("a", said("a billed line", { model: "billed" }))]);
  const asked = () => bench.upstream.requests.filter(({ text }) => text.includes("a billed line"));
  await until("the line is under way", () => asked().length === 1);
  const live = Promise.resolve(client.chat.completions.create(said("live", { model: "billed" }) as never));
  await Bun.sleep(100);
  released.resolve();
  expect(await live).toMatchObject({ object: "chat.completion" });
  expect((await ended(id)).request_counts).toMatchObject({ completed: 1 });
  expect(asked()).toHaveLength(1);
});

test("lines that find no room are in no other's way, and idle places are used again at once", async () => {
  await bench.addBackend({ ...NARROW, url: bench.upstream.url, name: "stuck", models: ["stuck"] });
  const released = Promise.withResolvers<void>();
  bench.upstream.answer(async (request, reply) => {
    if (request.json.model === "stuck") await released.promise;
    return politeHandler(request, reply);
  });
  const stuck = Array.from({ length: 20 }, (_, index) => line(`s${index}`, said("x", { model: "stuck" })));
  const others = Array.from({ length: 60 }, (_, index) => line(`o${index}`, said("x")));
  const { id } = await create([...stuck, ...others]);
  await until("the others are answered", async () => {
    const { request_counts } = await client.batches.retrieve(id);
    return request_counts!.completed === others.length;
  });
  await client.batches.cancel(id);
  released.resolve();
  const { completed, failed } = (await ended(id)).request_counts!;
  // Where another process runs them, one more may go before it hears of the end.
  expect([completed >= 61, completed <= 63, completed + failed]).toEqual([true, true, 80]);
});

test("a backend that the operator did not allow gets no lines", async () => {
  await bench.addBackend({ name: "closed", type: "external", url: bench.upstream.url, models: ["other"] });
  const { errors } = await create([line("a", said("x", { model: "other" }))]);
  expect(errors!.data![0]!.message).toContain("takes batches");
});

test("files and batches go when they are old, with all that belongs to them", async () => {
  const { id } = await create(["a", "b", "c"].map((each) => line(each, said(each))));
  await ended(id);
  const { batches } = bench.app.rooms as unknown as { batches: Batches };
  const inDays = (days: number) => Date.now() + days * 86_400_000;
  expect(await batches.sweepFiles(inDays(29), 1_000)).toBe(0);
  expect(await batches.sweepFiles(inDays(32), 1_000)).toBeGreaterThan(1);
  expect((await client.files.list()).data).toEqual([]);
  expect((await client.batches.list()).data.map((each) => each.id)).toContain(id);
  expect(await batches.sweepBatches(inDays(32), 1_000)).toBeGreaterThan(0);
  expect((await client.batches.list()).data).toEqual([]);
});

inOneProcess("a restart waits for what was sent, and sends the rest afterwards", async () => {
  const { dataDir } = bench;
  const released = Promise.withResolvers<void>();
  const sent: string[] = [];
  bench.upstream.answer(async (request, reply) => {
    sent.push(request.json.messages[0].content);
    await released.promise;
    return politeHandler(request, reply);
  });
  const names = Array.from({ length: 12 }, (_, index) => `restarted ${index}`);
  const { id } = await create(names.map((each) => line(each, said(each))));
  await until("as many as are idle are under way", () => sent.length === 8);
  const drained = bench.app.drain();
  released.resolve();
  await drained;
  expect(sent).toHaveLength(8);
  const again = await bootGateway({ dataDir, config: { apiRateLimitRpm: 100_000 } });
  try {
    const by = new OpenAI({ baseURL: `${again.url}/v1`, apiKey: bench.key, maxRetries: 0 });
    const done = await ended(id, by);
    expect(done).toMatchObject({ status: "completed", request_counts: { completed: 12, failed: 0 } });
    expect(sent.toSorted()).toEqual(names.toSorted());
  } finally {
    await again.stop();
  }
});
