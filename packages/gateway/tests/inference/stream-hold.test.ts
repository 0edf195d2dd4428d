/** A stream's hold grows with what is delivered; when no more can be held, the stream ends there. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, type ReceivedRequest, usageChunk } from "@model-gateway/testing/upstream.ts";
import { bootSpending, DEAR, type Spender, type SpendingBench } from "../support/spending.ts";

let bench: SpendingBench;
let count = 0;
const nameOf = (what: string) => `${what}-${++count}`;
beforeAll(async () => {
  bench = await bootSpending();
});
afterAll(() => bench.stop());

/** 100 tokens by the gateway's count. */
const HUNDRED = " word".repeat(96);
const FREE_TOKENS = 100_000;

/** What an upstream on another machine has written is read many events at a time. */
const WRITTEN_AT_ONCE = 1_000;
/** However much of it waits between the machines, it goes on until it is stopped. */
const WITHOUT_END = Number.POSITIVE_INFINITY;

/** Writes hundreds of tokens as fast as they are taken, whatever it was told, to each of `choices` answers. */
function writeOn(hundreds: number, choices = 1): { seen: () => ReceivedRequest } {
  let request: ReceivedRequest | null = null;
  bench.upstream.answer(async (received, reply) => {
    request = received;
    reply.head(200, { "content-type": "text/event-stream" });
    const events = Array.from({ length: Math.min(hundreds, WRITTEN_AT_ONCE) }, (_, i) =>
      indexed(chunk({ delta: { content: HUNDRED } }), i % choices),
    ).join("");
    for (let i = 0; i < hundreds && received.closedAtMs === null; i += WRITTEN_AT_ONCE) {
      await reply.write(events);
      await Bun.sleep(0);
    }
    if (received.closedAtMs !== null) return;
    for (let i = 0; i < choices; i++) await reply.write(indexed(chunk({ finish_reason: "stop" }), i));
    const completion_tokens = hundreds * 100;
    await reply.write(
      usageChunk({ prompt_tokens: 9, completion_tokens, total_tokens: completion_tokens + 9 }),
    );
    await reply.write(DONE);
    await reply.end();
  });
  return { seen: () => request! };
}
const indexed = (event: string, index: number) => event.replace('"index":0', `"index":${index}`);

interface Event {
  choices: { index: number; delta: { content?: string }; finish_reason: string | null }[];
  usage?: { completion_tokens: number };
}
async function eventsOf(answer: Response): Promise<{ events: Event[]; isDone: boolean }> {
  const datas = (await answer.text())
    .split("\n")
    .filter((line) => line.startsWith("data: "))
    .map((line) => line.slice(6));
  return {
    events: datas.filter((data) => data !== "[DONE]").map((data) => JSON.parse(data) as Event),
    isDone: datas.at(-1) === "[DONE]",
  };
}
const finishesOf = (events: Event[]) =>
  events.flatMap(({ choices }) => choices.map(({ finish_reason }) => finish_reason)).filter(Boolean);
const deliveredTokens = (events: Event[]) =>
  events.reduce((sum, { choices }) => sum + (choices[0]?.delta.content ? 100 : 0), 0);

const endless = (who: Spender, body: Record<string, unknown> = {}) =>
  who.chat({ stream: true, stream_options: { include_usage: true }, ...body });

describe("a long stream", () => {
  test("is never cut while it can be paid, however long it gets", async () => {
    writeOn(300);
    const who = await bench.spender(nameOf("reader"));
    // Nothing says how long its answers get: 8,192 tokens are held at first.
    const { events, isDone } = await eventsOf(await endless(who, { model: "homemade" }));
    expect(deliveredTokens(events)).toBe(30_000);
    expect(finishesOf(events)).toEqual(["stop"]);
    expect(isDone).toBe(true);
    expect((await who.rows())[0]).toMatchObject({ completion_tokens: 30_000, estimated: false });
  });

  test("ends with `length` when the quota has no more, and the upstream is stopped", async () => {
    const { seen } = writeOn(WITHOUT_END);
    const who = await bench.spender(nameOf("reader"));
    const { events, isDone } = await eventsOf(await endless(who, { model: "homemade" }));
    expect(finishesOf(events)).toEqual(["length"]);
    expect(isDone).toBe(true);
    const delivered = deliveredTokens(events);
    expect(delivered).toBeGreaterThan(FREE_TOKENS * 0.9);
    expect(delivered).toBeLessThan(FREE_TOKENS + 1_024 + 2_000);
    const usage = events.find((event) => event.usage)!.usage!;
    expect(usage.completion_tokens).toBeGreaterThanOrEqual(delivered * 0.99);
    await until("the upstream was stopped", () => seen().closedAtMs !== null);
    const [row] = await who.rows();
    expect(row).toMatchObject({ completion_tokens: usage.completion_tokens, estimated: true });
    expect((await who.chat({ model: "homemade" })).status).toBe(429);
    expect(bench.app.rooms.metering).toMatchObject({ holdCount: 0 });
  });

  test("of an upstream that keeps to no limit ends soon after what the points pay", async () => {
    writeOn(WITHOUT_END);
    const who = await bench.spender(nameOf("reader"), { points: 10, drained: true });
    const answer = await endless(who);
    const limit = Number(answer.headers.get("x-service-max-tokens"));
    expect(limit).toBeLessThan(3_334);
    const { events } = await eventsOf(answer);
    expect(finishesOf(events)).toEqual(["length"]);
    expect(deliveredTokens(events)).toBeLessThan(limit * 1.34 + 2_000);
    // What it delivered beyond is owed, and nothing more is served until it is paid.
    const wallet = await who.wallet();
    expect(wallet.balance).toBe(0);
    expect(wallet.debt).toBeGreaterThan(0);
    const refused = await who.chat({ max_tokens: 1 });
    expect(refused.status).toBe(402);
    expect(((await refused.json()) as { error: { message: string } }).error.message).toContain(
      `You owe ${wallet.debt} points`,
    );
  });

  test("with several answers ends each of them", async () => {
    writeOn(WITHOUT_END, 3);
    const who = await bench.spender(nameOf("reader"), { points: 10, drained: true });
    const { events, isDone } = await eventsOf(await endless(who, { n: 3 }));
    expect(finishesOf(events)).toEqual(["length", "length", "length"]);
    expect(isDone).toBe(true);
  });

  test("over notifications and the Messages API ends in their own words", async () => {
    writeOn(WITHOUT_END);
    const anthropic = await bench.spender(nameOf("reader"), { points: 10, drained: true });
    const message = {
      model: DEAR,
      max_tokens: 20_000,
      stream: true,
      messages: [{ role: "user", content: "x" }],
    };
    expect(await (await anthropic.post("/v1/messages", message)).text()).toContain(
      '"stop_reason":"max_tokens"',
    );

    const person = await bench.spender(nameOf("reader"), { points: 10, drained: true });
    const messages = [{ role: "user", content: "x" }];
    const { stream_id } = await bench.rpc("chat.send", { model: DEAR, messages }, person.token);
    const events = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}`);
    let text = "";
    for await (const piece of events.body!) {
      text += new TextDecoder().decode(piece);
      if (text.includes('"done":true')) break;
    }
    expect(text.slice(text.lastIndexOf("data:"))).toContain('"finish_reason":"length"');
  });

  test("moves from the points to the quota when they do not cover it as a whole", async () => {
    writeOn(300);
    const who = await bench.spender(nameOf("reader"), { points: 60 });
    // 60 points pay 20,000 tokens; the quota's dollar pays 33,000.
    const { events } = await eventsOf(await endless(who));
    expect(finishesOf(events)).toEqual(["stop"]);
    expect((await who.rows())[0]).toMatchObject({ completion_tokens: 30_000, points: null });
    expect((await who.wallet()).balance).toBe(60);
  });
});

test("a storm of clients that leave at any moment leaves no hold behind", async () => {
  writeOn(200);
  const who = await bench.spender(nameOf("stormy"), { points: 20_000 });
  await Promise.all(
    Array.from({ length: 200 }, async (_, i) => {
      const leaving = new AbortController();
      const leave = () => leaving.abort();
      // Every fourth has got something, for which more is held.
      const timer = i % 4 === 0 ? undefined : setTimeout(leave, Math.random() * 60);
      try {
        const answer = await who.chat({ max_tokens: 50, stream: i % 4 !== 1 }, { signal: leaving.signal });
        await answer.body!.getReader().read();
        leave();
      } catch {
        // It left.
      } finally {
        clearTimeout(timer);
      }
    }),
  );
  await until("every call has ended", () => bench.app.rooms.inference.callsInFlight === 0);
  expect(bench.app.rooms.metering).toMatchObject({ holdCount: 0 });
  const account = { type: "user", id: who.userId } as const;
  await until("what is left can be held to the last point, whichever process the calls were in", async () => {
    const { balance } = await who.wallet();
    const hold = await bench.app.rooms.metering.holdPoints(account, balance);
    hold?.release();
    return hold !== null;
  });
  expect((await who.chat({ max_tokens: 1, stream: true })).status).toBe(200);
});
