/** One account cannot take from all the others what the process has: its turns, its memory, its places. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion } from "@model-gateway/testing/upstream.ts";
import fc from "fast-check";
import { Purse } from "../../src/kernel/bounded.ts";
import { continueWith } from "../../src/rooms/inference/turn/turn-record.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

test("nobody has more of a purse than is left for the others, and what is given back can be taken again", () => {
  const step = fc.record({ who: fc.constantFrom("a", "b", "c"), amount: fc.integer({ min: 1, max: 60 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const purse = new Purse(100);
      const taken: typeof steps = [];
      const sumOf = (who?: string) =>
        taken.reduce((sum, each) => sum + (who === undefined || each.who === who ? each.amount : 0), 0);
      for (const { who, amount } of steps) {
        const isGranted = purse.take(who, amount);
        if (isGranted) taken.push({ who, amount });
        expect(isGranted ? sumOf(who) <= 100 - sumOf() : sumOf(who) + amount > 100 - sumOf() - amount).toBe(
          true,
        );
      }
      for (const { who, amount } of taken.splice(0)) purse.give(who, amount);
      expect(purse.take("d", 50)).toBe(true);
    }),
  );
});

test("what a call repeats of its conversation is found however often it repeats itself", () => {
  const message = fc.constantFrom("x", "y").map((content) => ({ role: "user", content }));
  const list = fc.array(message, { maxLength: 12 });
  const text = (messages: readonly { content?: unknown }[]) =>
    messages.map(({ content }) => content).join("");
  fc.assert(
    fc.property(list, list, (stored, sent) => {
      let count = Math.min(stored.length, sent.length);
      while (count > 0 && text(stored.slice(-count)) !== text(sent.slice(0, count))) count--;
      const { added } = continueWith(stored, sent, { sentIsWhole: false });
      expect(text(added)).toBe(text(sent.slice(count)));
    }),
  );
});

test("40,000 calls, 8,000 results and 2,000 equal messages are put in order in linear time", () => {
  const calls = Array.from({ length: 40_000 }, (_, i) => ({ id: `c${i}` }));
  const results = Array.from({ length: 8_000 }, (_, i) => ({
    role: "tool",
    content: "r",
    tool_call_id: `c${i}`,
  }));
  const asking = { role: "assistant", content: "", tool_calls: calls };
  const { sequence } = continueWith([], [asking, ...results], { sentIsWhole: false });
  expect(sequence.filter(({ content }) => content === "r")).toHaveLength(8_000);
  const equal = Array.from({ length: 2_000 }, () => ({ role: "user", content: "same" }));
  const other = { role: "user", content: "other" };
  expect(continueWith(equal, [...equal.slice(1), other], { sentIsWhole: false }).added).toEqual([other]);
});

test("a batch whose answers are too large together has the rest of its calls refused", async () => {
  const { conversations } = bench.app.rooms;
  const { id } = await bench.rpc("conversations.create", { title: "long" }, bench.token);
  await conversations.append(id, [{ role: "user", content: " ".repeat(1_000_000) }]);
  const answer = await fetch(`${bench.url}/api/rpc`, {
    method: "POST",
    headers: { authorization: `Bearer ${bench.token}`, "content-type": "application/json" },
    body: JSON.stringify(
      Array.from({ length: 20 }, (_, n) => ({
        jsonrpc: "2.0",
        id: n,
        method: "conversations.get",
        params: { conversation_id: id },
      })),
    ),
  });
  const text = await answer.text();
  expect(text.length).toBeLessThan(12 * 1024 * 1024);
  const responses = JSON.parse(text) as { result?: unknown; error?: { message: string } }[];
  expect(responses).toHaveLength(20);
  expect(responses[0]!.result).toBeDefined();
  expect(responses.at(-1)!.error?.message).toContain("too large together");
});

test("a small body does not inflate to a large one", async () => {
  const body = Bun.gzipSync(JSON.stringify({ model: "m", messages: [], x: " ".repeat(31 * 1024 * 1024) }));
  const answer = await fetch(`${bench.url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${bench.key}`,
      "content-type": "application/json",
      "content-encoding": "gzip",
    },
    body,
  });
  expect(answer.status).toBe(413);
  await answer.text();
});

// Each process has memory of its own.
inOneProcess(
  "answers that are not read count: who reads none gets no more of them, until they are dropped",
  async () => {
    const vector = Buffer.alloc(24 * 1024 * 1024, "A");
    const ends = ['{"data":[{"index":0,"embedding":"', '"}],"usage":{"prompt_tokens":1,"total_tokens":1}}'];
    const list = Buffer.concat([Buffer.from(ends[0]!), vector, Buffer.from(ends[1]!)]);
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "application/json", "content-length": String(list.length) });
      await reply.raw(list);
    });
    const body = JSON.stringify({ model: "m", input: "a", encoding_format: "base64" });
    const head = `POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bench.key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    const unread: Socket[] = [];
    /** The status of an answer of which nothing else is read. */
    const ask = async () => {
      const socket = connect(Number(new URL(bench.url).port), "127.0.0.1").on("error", () => {});
      unread.push(socket);
      socket.write(head + body);
      const [first] = (await once(socket, "data")) as [Buffer];
      socket.pause();
      return Number(first.toString("latin1", 9, 12));
    };
    const statuses: number[] = [];
    while (statuses.at(-1) !== 429 && statuses.length < 14) statuses.push(await ask());
    expect(statuses.slice(0, 5)).toEqual([200, 200, 200, 200, 200]);
    expect(statuses.at(-1)).toBe(429);
    for (const socket of unread) socket.destroy();
    await until("it is served again", async () => {
      const answer = await bench.post("/v1/embeddings", body);
      await answer.arrayBuffer();
      return answer.status === 200;
    });
  },
);

// Each process has calls of its own.
inOneProcess(
  "one account's calls in progress leave room for all others, whichever door they came through",
  async () => {
    const held = Promise.withResolvers<void>();
    bench.upstream.answer(async (_, reply) => {
      await held.promise;
      return reply.json(completion("late"));
    });
    const call = { method: "chat.send", params: { model: "m", messages: [{ role: "user", content: "hi" }] } };
    const sendMany = async () => {
      const calls = Array.from({ length: 100 }, (_, id) => ({ jsonrpc: "2.0", id, ...call }));
      const answer = await fetch(`${bench.url}/api/rpc`, {
        method: "POST",
        headers: { authorization: `Bearer ${bench.token}`, "content-type": "application/json" },
        body: JSON.stringify(calls),
      });
      return (await answer.json()) as { result?: unknown; error?: { message: string } }[];
    };
    const answers: Awaited<ReturnType<typeof sendMany>> = [];
    while (answers.length < 10_000 && !answers.at(-1)?.error) answers.push(...(await sendMany()));
    const taken = answers.filter(({ result }) => result !== undefined);
    expect(taken.length).toBeLessThanOrEqual(5_000);
    expect(answers.at(-1)!.error!.message).toContain("too many requests in progress");
    // By the key, too; somebody else is served.
    expect((await bench.chat({})).status).toBe(429);
    const other = await bench.signIn("other");
    const { key } = await bench.rpc("keys.create", { name: "other" }, other);
    const served = bench.chat({}, { headers: { authorization: `Bearer ${key}` } });
    held.resolve();
    expect((await served).status).toBe(200);
    await until("it is served again", async () => (await bench.chat({})).status === 200);
  },
);

test("every answer says what it is and nothing else; documents are the same each time", async () => {
  for (const path of ["/v1/models", "/api/openapi.json", "/api/openrpc.json", "/nowhere", "/"]) {
    const [first, second] = [await fetch(bench.url + path), await fetch(bench.url + path)];
    expect([path, first.headers.get("x-content-type-options")]).toEqual([path, "nosniff"]);
    expect(await first.text()).toBe(await second.text());
  }
  const document = await (await fetch(`${bench.url}/api/openrpc.json`)).json();
  expect(document.servers[0].url).toBe(`${bench.url}/api/rpc`);
});
