import { expect, test } from "bun:test";
import { watchHealth } from "../src/supervise/health.ts";

/** An engine whose checks are answered in turn; `null` is silence. */
function engineAnswering(answers: (number | null)[]) {
  let asked = 0;
  const server = Bun.serve({
    port: 0,
    fetch: () => {
      const status = answers[asked++];
      return status === null || status === undefined
        ? new Promise<Response>(() => {})
        : new Response("", { status });
    },
  });
  return { url: `http://127.0.0.1:${server.port}/health`, asked: () => asked, stop: () => server.stop(true) };
}

const watch = (url: string) =>
  watchHealth(url, new AbortController().signal, { intervalMs: 1, timeoutMs: 500 });

test("an engine is given up after three missed checks in a row, silent or failing", async () => {
  const silent = engineAnswering([200, null, null, 200, null, null, null]);
  expect(await watch(silent.url)).toBe("no answer within 0.5 s");
  expect(silent.asked()).toBe(7);
  silent.stop();
  const failing = engineAnswering([500, 503, 200, 500, null, 503]);
  expect(await watch(failing.url)).toBe("HTTP 503");
  expect(failing.asked()).toBe(6);
  failing.stop();
});
