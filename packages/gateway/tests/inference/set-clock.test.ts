import { afterAll, beforeAll, expect, test } from "bun:test";
import { deploymentOfRun } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, completion, wholeStream } from "@model-gateway/testing/upstream.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const HOURS_MS = 2 * 3_600_000;
/** Deadlines are looked at four times as often. */
const KEEP_ALIVE_MS = 400;

let offsetMs = 0;
let looks = 0;
let elapsedMs = 0;
/** The machine's clock, which somebody sets while the service runs. */
const clock: Clock = {
  ...systemClock,
  elapsed: () => systemClock.elapsed() + elapsedMs,
  now: () => systemClock.now() + offsetMs,
  every: (periodMs, task) =>
    systemClock.every(periodMs, () => {
      task();
      if (periodMs === KEEP_ALIVE_MS / 4) looks++;
    }),
};

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference({ overrides: { clock, deadlines: { keepAliveMs: KEEP_ALIVE_MS } } });
});
afterAll(() => bench.stop());

test.each([
  ["forward", HOURS_MS],
  ["back", -HOURS_MS],
])("a clock that is set %s by hours ends no request that is under way", async (_where, byMs) => {
  const goOn = Promise.withResolvers<void>();
  let begun = 0;
  bench.upstream.answer(async (request, reply) => {
    const [first, ...rest] = wholeStream(["one ", "two"]) as [string, ...string[]];
    begun++;
    if (!request.json.stream) {
      await goOn.promise;
      return reply.json({ choices: [{ index: 0, message: { role: "assistant", content: "whole" } }] });
    }
    reply.head(200, { "content-type": "text/event-stream" });
    await reply.write(first);
    await reply.write(chunk({ delta: { content: "zero " } }));
    await goOn.promise;
    for (const piece of rest) await reply.write(piece);
    return reply.end();
  });
  const asked = [bench.chat({ stream: true }), bench.chat({})];
  await until("both are under way", () => begun === 2);
  offsetMs = byMs;
  const before = looks;
  await until("the deadlines were looked at", () => looks > before + 2);
  goOn.resolve();
  const [stream, whole] = await Promise.all(asked.map(async (answer) => (await answer).text()));
  expect(stream).toEndWith("data: [DONE]\n\n");
  expect(whole).toContain("whole");
  offsetMs = 0;
});

test.each([
  ["forward", HOURS_MS],
  ["back", -HOURS_MS],
])("a clock that is set %s by hours gives no key another minute, and takes none", async (_where, byMs) => {
  const usage = { prompt_tokens: 9, completion_tokens: 491, total_tokens: 500 };
  bench.upstream.answer((_, reply) => reply.json(completion("hi", { usage })));
  const keys = await Promise.all(
    [{ requests_per_minute: 1 }, { tokens_per_minute: 900 }].map((limit) =>
      bench.rpc("keys.create", { name: "slow", ...limit }, bench.token),
    ),
  );
  const statuses = () =>
    Promise.all(
      keys.map(async ({ key }) => {
        const headers = { authorization: `Bearer ${key}` };
        const answer = await bench.chat({ max_tokens: 500 }, { headers });
        await answer.text();
        return answer.status;
      }),
    );
  expect(await statuses()).toEqual([200, 200]);
  expect(await statuses()).toEqual([429, 429]);
  offsetMs = byMs;
  // Whatever looks at the clock notices.
  await bench.chat({});
  expect(await statuses()).toEqual([429, 429]);
  // With several processes it is another one that counts, or Redis. Tokens leave by a timer of their own.
  elapsedMs += 61_000;
  if (!deploymentOfRun) expect((await statuses())[0]).toBe(200);
  offsetMs = 0;
});
