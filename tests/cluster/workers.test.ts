import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import type { Reply } from "@model-gateway/testing/upstream.ts";
import { Instance } from "./support/cluster.ts";
import { childrenOf, isAlive, killWorkers, openWorkers, type WorkersStage } from "./support/workers.ts";

/** Linux alone spreads the connections of one port over processes. */
const isLinux = process.platform === "linux";
const PATIENCE_MS = 120_000;

const CHUNK = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "word" } }] })}\n\n`;
const LAST = `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: { prompt_tokens: 9, completion_tokens: 4 } })}\n\ndata: [DONE]\n\n`;

describe.if(isLinux)("npm start -- --workers 2", () => {
  let stage: WorkersStage;
  /** The upstream's ends of streams that have begun. */
  const open: Reply[] = [];
  beforeAll(async () => {
    // So long that whatever waits for it runs into the test's own deadline.
    stage = await openWorkers(2, { SERVICE_DRAIN_TIMEOUT_MS: "600000" });
    stage.upstream.answer(async ({ json }, reply) => {
      if (!json.stream)
        return reply.json({ choices: [{ index: 0, message: { role: "assistant", content: "hi" } }] });
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(CHUNK);
      open.push(reply);
    });
  }, PATIENCE_MS);
  afterAll(() => stage?.end());

  const finishAll = async () => {
    for (const reply of open.splice(0)) {
      await reply.write(LAST).catch(() => {});
      await reply.end().catch(() => {});
    }
  };
  /** A stream of which the first piece has arrived. */
  const begin = async (key: string, maxTokens = 8) => {
    const response = await fetch(`${stage.service.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({
        model: "m",
        max_tokens: maxTokens,
        stream: true,
        messages: [{ role: "user", content: "hi" }],
      }),
    });
    const reader = response.body!.getReader();
    if (response.ok) await reader.read();
    const rest = async () => {
      let text = "";
      const decoder = new TextDecoder();
      for (let part = await reader.read(); !part.done; part = await reader.read())
        text += decoder.decode(part.value, { stream: true });
      return text;
    };
    /** Whether it came to its end. */
    const isWhole = rest().then(
      (text) => text.endsWith("data: [DONE]\n\n"),
      () => false,
    );
    return { status: response.status, isWhole };
  };
  /** So many streams that each worker has some; how many each has. */
  const beginOnBoth = async () => {
    const streams: Awaited<ReturnType<typeof begin>>[] = [];
    let onEach = new Map<number, number>();
    do {
      streams.push(await begin(stage.groupKey));
      onEach = await stage.figure("gateway_calls_in_flight");
    } while ([...onEach.values()].some((count) => count === 0));
    return { streams, onEach };
  };
  const wholeOf = async (streams: readonly { isWhole: Promise<boolean> }[]) =>
    (await Promise.all(streams.map(({ isWhole }) => isWhole))).filter(Boolean).length;

  test(
    "both serve the port; a second service on the same data is refused",
    async () => {
      expect(await stage.figure("gateway_worker_starts")).toEqual(
        new Map([
          [1, 1],
          [2, 1],
        ]),
      );
      expect(statSync(join(stage.service.dataDir, "workers.sock")).mode & 0o777).toBe(0o600);
      const text = await (await fetch(`${stage.service.url}/metrics`)).text();
      for (const name of new Set(text.match(/^# TYPE \S+/gm))) expect(text.split(`${name} `)).toHaveLength(2);
      const second = new Instance({ ...stage.service.options, dataDir: stage.service.dataDir });
      const refused = await second.start().then(
        () => null,
        (error: Error) => error.message,
      );
      await second.kill();
      expect(refused).toContain("another process serves from");
    },
    PATIENCE_MS,
  );

  test(
    "kill -9 of a worker: the other's streams go on, another one takes its place, its holds are freed",
    async () => {
      const { key } = await stage.service.rpc(
        "keys.create",
        { name: "tight", total_budget_usd: 1.1 },
        stage.admin,
      );
      // It may cost a dollar, so that there is no room for another one.
      expect((await begin(key, 1_000)).status).toBe(200);
      const before = await stage.figure("gateway_calls_in_flight");
      const holder = [...before.entries()].find(([, count]) => count > 0)![0];
      expect((await begin(key, 1_000)).status).toBe(402);
      const { streams, onEach } = await beginOnBoth();

      const pids = stage.workers();
      const victim = pids[holder - 1]!;
      process.kill(victim, "SIGKILL");
      await until("it is gone", () => !isAlive(victim));
      const there = onEach.get(holder)! - 1;
      await finishAll();
      expect(await wholeOf(streams)).toBe(streams.length - there);
      await stage.whole([victim]);
      expect((await stage.figure("gateway_worker_starts")).get(holder)).toBe(2);
      await until("its hold is freed", async () => (await begin(key, 1_000)).status === 200);
      await finishAll();
    },
    PATIENCE_MS,
  );

  test(
    "SIGTERM to all processes, as a service manager sends it: streams of both finish, and nothing is left running",
    async () => {
      const { streams } = await beginOnBoth();
      const idle = await fetch(`${stage.service.url}/api/rpc/events?session=idle`);
      const pids = stage.workers();
      for (const pid of pids) process.kill(pid, "SIGTERM");
      const ended = stage.service.drain();
      await until("both refuse new connections", () =>
        fetch(`${stage.service.url}/healthz`, { headers: { connection: "close" } }).then(
          () => false,
          () => true,
        ),
      );
      await finishAll();
      expect(await wholeOf(streams)).toBe(streams.length);
      // Nothing is in progress any more, so a stream that only waits does not keep the service.
      await idle.text();
      expect(await ended).toBe(0);
      expect(pids.filter(isAlive)).toEqual([]);
    },
    PATIENCE_MS,
  );

  test(
    "kill -9 of the supervisor: the workers finish their streams and end",
    async () => {
      await stage.service.start();
      await stage.whole();
      const { streams } = await beginOnBoth();
      const pids = stage.workers();
      process.kill(stage.service.pid, "SIGKILL");
      await finishAll();
      expect(await wholeOf(streams)).toBe(streams.length);
      await until("no worker is left", () => !pids.some(isAlive), PATIENCE_MS);
    },
    PATIENCE_MS,
  );
});

test.concurrent.if(isLinux)(
  "a worker that dies while another one starts for the first time is replaced",
  async () => {
    const service = new Instance({ databaseUrl: null, redisUrl: null, env: { SERVICE_WORKERS: "2" } });
    try {
      const started = service.start();
      const workers = () => (service.pid > 0 ? childrenOf(service.pid) : []);
      // The second is started when the first is ready.
      await until("the second worker is started", () => workers().length === 2);
      const [first] = workers();
      process.kill(first!, "SIGKILL");
      await started;
      await until("there are two again", () => workers().length === 2 && !workers().includes(first!));
      expect(await service.drain()).toBe(0);
    } finally {
      await service.remove();
    }
  },
  PATIENCE_MS,
);

test.concurrent.if(isLinux)(
  "a worker that joins another takes requests when it knows its backends",
  async () => {
    const stage = await openWorkers(2);
    try {
      const probe = Promise.withResolvers<void>();
      stage.upstream.listing(async (_, reply) => {
        await probe.promise;
        await reply.json({ object: "list", data: [{ id: "m", object: "model" }] });
      });
      const [victim] = stage.workers();
      const probesBefore = stage.upstream.probeCount;
      process.kill(victim!, "SIGKILL");
      await until("the new one probes", () => stage.upstream.probeCount > probesBefore);
      /** The kernel chooses a worker for each connection: so many of them find every one that listens. */
      const statuses = () =>
        Promise.all(
          Array.from({ length: 16 }, async () => {
            const headers = { authorization: `Bearer ${stage.groupKey}`, connection: "close" };
            const answer = await fetch(`${stage.service.url}/v1/chat/completions`, {
              method: "POST",
              headers: { ...headers, "content-type": "application/json" },
              body: JSON.stringify({
                model: "m",
                max_tokens: 8,
                messages: [{ role: "user", content: "hi" }],
              }),
            });
            await answer.text();
            return answer.status;
          }),
        );
      // It joins after two seconds in any case, and a call waits five for a probe: no more rounds than fit.
      expect(new Set(await statuses())).toEqual(new Set([200]));
      probe.resolve();
      let isWhole = false;
      const joined = stage.whole([victim!]).finally(() => {
        isWhole = true;
      });
      while (!isWhole) expect(new Set(await statuses())).toEqual(new Set([200]));
      await joined;
      expect(new Set(await statuses())).toEqual(new Set([200]));
    } finally {
      await stage.end();
    }
  },
  PATIENCE_MS,
);

test.concurrent.if(isLinux)(
  "kill -9 of workers and of the supervisor under load loses nothing and doubles nothing",
  async () => {
    const stage = await openWorkers(2, { SERVICE_DRAIN_TIMEOUT_MS: "1000" });
    try {
      const { problems, answered, rows } = await killWorkers(stage, 3);
      expect(problems).toEqual([]);
      expect(rows).toBeGreaterThanOrEqual(answered);
    } finally {
      await stage.end();
    }
  },
  PATIENCE_MS * 2,
);
