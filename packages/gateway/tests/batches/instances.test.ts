import { describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion, startUpstream } from "@model-gateway/testing/upstream.ts";
import OpenAI, { toFile } from "openai";
import { systemClock } from "../../src/kernel/clock.ts";
import { company, registerBackend, type Sharing, sharings } from "../instances/support.ts";

const LINES = 40;
const names = Array.from({ length: LINES }, (_, at) => `line ${at}`);

/** Two instances, of which the second has a clock of its own, and a client of each. */
async function bootTwo(sharing: Sharing) {
  const { boot, stop: stopShared } = await company(sharing);
  const upstream = startUpstream();
  const sent: string[] = [];
  const gate = { opened: Promise.withResolvers<void>(), isShut: false };
  upstream.answer(async ({ json }, reply) => {
    sent.push(json.messages[0].content);
    if (gate.isShut) await gate.opened.promise;
    await reply.json(completion("ok"));
  });
  const late = { byMs: 0 };
  const clock = { ...systemClock, now: () => systemClock.now() + late.byMs };
  const config = { apiRateLimitRpm: 100_000 };
  const [a, b] = await Promise.all([boot({ config }), boot({ config, overrides: { clock } })]);
  const token = await a.signIn("ada");
  await a.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  await a.rpc("billing.prices.set", { model: "m", input_usd: 100, output_usd: 200 }, token);
  const { key } = await a.rpc("keys.create", { name: "k", monthly_budget_usd: 0.8 }, token);
  await registerBackend(a, { name: "b", type: "external", url: upstream.url, batches: true });
  const clientOf = ({ url }: TestGateway) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const [atA, atB] = [clientOf(a), clientOf(b)];
  for (const client of [atA, atB])
    await until("the model is served", async () =>
      (await client.models.list()).data.some(({ id }) => id === "m"),
    );
  const create = async (client: OpenAI) => {
    const lines = names.map((custom_id) => {
      const body = { model: "m", max_tokens: 50, messages: [{ role: "user", content: custom_id }] };
      return JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
    });
    const file = await toFile(Buffer.from(lines.join("\n")), "in.jsonl");
    const { id } = await client.files.create({ file, purpose: "batch" });
    const asked = { endpoint: "/v1/chat/completions", completion_window: "24h" } as const;
    return client.batches.create({ input_file_id: id, ...asked });
  };
  const ended = async (client: OpenAI, id: string) => {
    let batch = await client.batches.retrieve(id);
    await until("the batch has ended", async () => {
      batch = await client.batches.retrieve(id);
      return ["completed", "cancelled"].includes(batch.status);
    });
    return batch;
  };
  const linesOf = async (client: OpenAI, fileId: string | null | undefined) =>
    fileId
      ? (await (await client.files.content(fileId)).text())
          .trim()
          .split("\n")
          .map((each) => JSON.parse(each))
      : [];
  const rowsOf = async (id: string): Promise<{ estimated: boolean; cost: number }[]> => {
    const { records } = await b.rpc("usage.list", { limit: 200 }, token);
    return records.filter(({ ref_id }: { ref_id: string }) => `batch_${ref_id}` === id);
  };
  const stop = async () => {
    gate.opened.resolve();
    await a.stop();
    await b.stop();
    upstream.stop();
    await stopShared();
  };
  return { atA, atB, sent, gate, late, create, ended, linesOf, rowsOf, stop };
}

describe.each(sharings)("two instances %s", (sharing) => {
  test("a batch is created on one, followed, fetched and cancelled on the other; no line is sent twice", async () => {
    const { atA, atB, sent, gate, create, ended, linesOf, rowsOf, stop } = await bootTwo(sharing);
    try {
      const { id } = await create(atA);
      const done = await ended(atB, id);
      expect(done).toMatchObject({ status: "completed", request_counts: { completed: LINES, failed: 0 } });
      const output = await linesOf(atB, done.output_file_id);
      expect(output.map(({ custom_id }) => custom_id)).toEqual(names);
      expect(sent.toSorted()).toEqual(names.toSorted());
      expect(await rowsOf(id)).toHaveLength(LINES);
      sent.length = 0;
      gate.isShut = true;
      // The one where the first was created may hold for it a moment longer.
      let second = { id: "" };
      await until("its hold has ended", async () => {
        second = await create(atB).catch(() => second);
        return second.id !== "";
      });
      await until("lines are under way", () => sent.length === 8);
      // What is held of the key's budget is held for both.
      for (const client of [atA, atB])
        expect(await create(client).then(() => "created", String)).toContain("budget");
      expect((await atA.batches.cancel(second.id)).status).toBe("cancelling");
      gate.opened.resolve();
      const cancelled = await ended(atA, second.id);
      expect(cancelled).toMatchObject({ status: "cancelled", request_counts: { completed: 8, failed: 32 } });
      expect(await atB.batches.retrieve(second.id)).toEqual(cancelled);
      expect(sent).toHaveLength(8);
    } finally {
      await stop();
    }
  });

  test("what the one that ran them had sent is settled by the other, which sends the rest", async () => {
    const { atA, atB, sent, gate, late, create, ended, linesOf, rowsOf, stop } = await bootTwo(sharing);
    try {
      gate.isShut = true;
      const { id } = await create(atA);
      await until("lines are under way", () => sent.length === 8);
      const first = sent.slice();
      gate.isShut = false;
      // As after a pause of the whole process: to the other its lease is over.
      late.byMs = 15_000;
      const done = await ended(atB, id);
      expect(done).toMatchObject({ status: "completed", request_counts: { completed: 32, failed: 8 } });
      const cut = await linesOf(atB, done.error_file_id);
      expect(cut.map(({ custom_id, error }) => `${custom_id} ${error.code}`).toSorted()).toEqual(
        first.map((name) => `${name} interrupted`).toSorted(),
      );
      gate.opened.resolve();
      expect(sent.toSorted()).toEqual(names.toSorted());
      const rows = await rowsOf(id);
      expect(rows.filter(({ estimated }) => estimated)).toHaveLength(8);
      expect(rows).toHaveLength(LINES);
    } finally {
      await stop();
    }
  });
});
