import { afterEach, expect, test } from "bun:test";
import { onEachDatabase, openStorage } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { cloudVideo, createCloudVideo } from "../../src/backends/cloud-video/index.ts";
import type { Backend } from "../../src/backends/contract.ts";
import { BusEventHub } from "../../src/bus/event-hub.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import type { FinalUsage, Metering } from "../../src/rooms/metering/index.ts";
import { Aliases } from "../../src/rooms/routing/aliases.ts";
import { newEntry } from "../../src/rooms/routing/entry.ts";
import { Router } from "../../src/rooms/routing/router.ts";
import { type JobView, Video, type VideoOptions } from "../../src/rooms/video/service.ts";
import type { Database } from "../../src/storage/contract.ts";
import { DatabaseLeases } from "../../src/storage/leases.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]).toString("base64");
const payer: Payer = {
  userId: "0b5c2f0e-0000-4000-8000-000000000001",
  keyId: null,
  attribution: "jwt-1",
  project: null,
  groupId: null,
  costMultiplierMicros: 1_000_000,
  rpmCeiling: null,
  keyLimits: null,
  tier: "free",
};

/** Stands for the journal: takes each request id once, as the real one does. */
class Journal {
  readonly rows = new Map<string, number>();
  attempts = 0;
  record: Metering["record"] = ({ requestId }, { costUsd }) => {
    this.attempts++;
    if (!this.rows.has(requestId)) this.rows.set(requestId, costUsd!);
    return null;
  };
}

interface Setup {
  db: Database;
  upstream: VideoUpstream;
  journal: Journal;
  holds: { open: number; usd: number };
  backend: Backend;
  events: string[];
  start(more?: Start): Video;
}

interface Start extends Partial<VideoOptions> {
  record?: Metering["record"];
  /** The backend that is chosen for new jobs. */
  serving?: Backend;
}

async function setUp(fresh: Parameters<Parameters<typeof onEachDatabase>[1]>[0]): Promise<Setup> {
  const { options, drop } = await fresh();
  const db = await openStorage(options);
  await db.run(
    "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, 'a', 'a', '', FALSE, $2)",
    [payer.userId, new Date().toISOString()],
  );
  const upstream = startMinimax();
  cleanups.push(drop, () => db.close(), upstream.stop);
  const journal = new Journal();
  const holds = { open: 0, usd: 0 };
  const events: string[] = [];
  const backend: Backend = createCloudVideo(
    { name: "hailuo", kind: "cloud-video", type: "minimax", url: upstream.url, apiKey: "key", models: ["m"] },
    { fetch, clock: systemClock },
  );
  const start = ({ record = journal.record, serving = backend, ...more }: Start = {}) => {
    const admit: Metering["admit"] = async ({ bound, ...job }) => {
      const heldUsd = "costUsd" in bound ? bound.costUsd : 0;
      holds.open++;
      holds.usd += heldUsd;
      const release = () => {
        holds.open--;
        holds.usd -= heldUsd;
      };
      const settle = (usage: FinalUsage) => {
        release();
        record(job, usage);
        return null;
      };
      return {
        outputTokensHeld: 0,
        lowered: false,
        sent() {},
        writtenTokens: () => 0,
        grow: async () => true,
        givenUp() {},
        settle,
        release,
      };
    };
    const entry = newEntry(cloudVideo, {
      config: serving.config,
      backend: serving,
      index: 0,
      persisted: false,
    });
    entry.state = "Healthy";
    const router = new Router([entry], systemClock);
    const bus = new InProcessBus();
    const hub = new BusEventHub(bus, systemClock, randomIds);
    const push = hub.push.bind(hub);
    hub.push = (session, json) => {
      events.push(`${session} ${json}`);
      push(session, json);
    };
    const video = new Video({
      db,
      bus,
      events: hub,
      clock: systemClock,
      ids: randomIds,
      leases: new DatabaseLeases({ db, clock: systemClock, instance: randomIds.uuid() }),
      log: silentLog,
      routing: {
        aliases: new Aliases(bus),
        router,
        backendNamed: (name) => (name === backend.config.name ? backend : null),
        callEnded() {},
      },
      metering: { admit, resume: async (options) => admit(options), record, written() {} },
      billing: { videoCostNanoUsd: async (_, { durationSeconds }) => durationSeconds * 0.01 * 1e9 },
      revocations: { onChange() {} },
      isInForce: async () => true,
      pollMs: { first: 10, most: 20 },
      tickMs: 10,
      ...more,
    });
    cleanups.push(() => video.close());
    return video;
  };
  return { db, upstream, journal, holds, events, backend, start };
}

async function ended(video: Video, id: string): Promise<JobView> {
  for (const deadline = Date.now() + 20_000; ; await Bun.sleep(10)) {
    const job = await video.get(payer.userId, id);
    if (job.status !== "queued" && job.status !== "running") return job;
    if (Date.now() > deadline) throw new Error(`still ${job.status}`);
  }
}
onEachDatabase("video jobs", (fresh) => {
  test("queued, running, done: priced by the clip, settled once, told on both channels", async () => {
    const { upstream, journal, holds, events, start } = await setUp(fresh);
    const video = start();
    const { job, streamId } = await video.create(payer, {
      model: "m",
      prompt: "a fox",
      duration_seconds: 6,
      images: [{ data_base64: PNG, mime_type: "image/png" }],
    });
    expect(job).toMatchObject({
      object: "video.generation",
      status: "queued",
      progress: 0,
      result: null,
      error: null,
      cost: 0,
    });
    const done = await ended(video, job.id);
    expect(done).toMatchObject({
      status: "done",
      progress: 100,
      cost: 0.06,
      error: null,
      result: { url: "https://cdn.example/v.mp4", mime_type: "video/mp4", width: 1366, height: 768 },
    });
    await until("the journal is tried", () => journal.attempts === 1);
    expect([...journal.rows]).toEqual([[job.id, 0.06]]);
    await until("the hold is released", () => holds.open === 0);
    expect(upstream.submissions).toEqual([
      { model: "m", prompt: "a fox", duration: 6, first_frame_image: `data:image/png;base64,${PNG}` },
    ]);
    expect(upstream.authorizations.every((value) => value === "Bearer key")).toBe(true);
    for (const channel of [job.id, streamId]) {
      const methods = events
        .filter((event) => event.startsWith(channel))
        .map((event) => JSON.parse(event.slice(37)).method);
      expect(methods[0]).toBe("video.progress");
      expect(methods.at(-1)).toBe("video.done");
    }
  });

  test("the images leave the database once the upstream has them", async () => {
    const { db, start } = await setUp(fresh);
    const video = start();
    const { job } = await video.create(payer, {
      model: "m",
      prompt: "p",
      images: [{ data_base64: PNG, mime_type: "image/png" }],
    });
    await ended(video, job.id);
    expect(JSON.stringify(await db.all("SELECT * FROM video_jobs"))).not.toContain(PNG);
  });

  const failures: [string, VideoUpstream["script"], string][] = [
    [
      "Fail",
      [minimax.status("Fail", { base_resp: { status_code: 1027, status_msg: "sensitive" } })],
      "sensitive",
    ],
    ["200 with an error code", [minimax.refused(2013, "bad params")], "bad params (2013)"],
    ["success without a file", [minimax.status("Success")], "without a file"],
  ];
  test.each(failures)(
    "an upstream that answers %s fails the job, and nothing is charged",
    async (_, script, message) => {
      const { upstream, journal, holds, start, events } = await setUp(fresh);
      upstream.script = script;
      const video = start();
      const { job } = await video.create(payer, { model: "m", prompt: "p" });
      const failed = await ended(video, job.id);
      expect([failed.status, failed.cost, failed.result]).toEqual(["failed", 0, null]);
      expect(failed.error).toContain(message);
      expect(journal.rows.size).toBe(0);
      await until("the hold is released", () => holds.open === 0);
      expect(events.at(-1)).toContain('"video.failed"');
    },
  );

  test("a refused submission fails the job", async () => {
    const { upstream, start } = await setUp(fresh);
    upstream.onSubmit = minimax.refused(1008, "insufficient balance");
    const video = start();
    const { job } = await video.create(payer, { model: "m", prompt: "p" });
    expect((await ended(video, job.id)).error).toContain("insufficient balance");
  });

  test.each([
    {
      answers: [
        () => new Response("overloaded", { status: 503 }),
        () => new Response("slow down", { status: 429 }),
      ],
    },
    { answers: [minimax.refused(1002, "rate limit"), minimax.refused(1024, "internal error")] },
  ])("a submission that was refused for now or never left is sent again", async ({ answers: refusals }) => {
    const { upstream, start } = await setUp(fresh);
    const answers = [...refusals];
    upstream.onSubmit = () => {
      const answer = answers.shift()!;
      if (answers.length === 0) upstream.onSubmit = null;
      return answer();
    };
    const video = start();
    const { job } = await video.create(payer, { model: "m", prompt: "p" });
    expect((await ended(video, job.id)).status).toBe("done");
    expect(upstream.submissions).toHaveLength(3);
  });

  const unclear: [string, (upstream: VideoUpstream) => Response][] = [
    ["a gateway's timeout", () => new Response("", { status: 504 })],
    ["a proxy in trouble", () => new Response("", { status: 502 })],
    ["a timeout inside a 200", () => minimax.refused(1001, "request timeout")()],
    [
      "the end of the connection",
      (upstream) => {
        upstream.stop();
        return new Response();
      },
    ],
  ];
  test.each(unclear)(
    "a submission answered by %s may have been taken: it is not sent twice, and costs nothing",
    async (_, answer) => {
      const { upstream, journal, holds, start } = await setUp(fresh);
      upstream.onSubmit = () => answer(upstream);
      const video = start();
      const { job } = await video.create(payer, { model: "m", prompt: "p" });
      const failed = await ended(video, job.id);
      expect([failed.status, failed.cost]).toEqual(["failed", 0]);
      expect(failed.error).toContain("not sent twice");
      expect(upstream.submissions).toHaveLength(1);
      expect(journal.rows.size).toBe(0);
      await until("the hold is released", () => holds.open === 0);
    },
  );

  test("500s, rate limits, rubbish and unknown words are asked again", async () => {
    const { upstream, journal, start } = await setUp(fresh);
    upstream.script = [
      () => new Response("oops", { status: 500 }),
      minimax.refused(1002, "rate limit"),
      () => new Response("<html>"),
      minimax.status("Dreaming"),
      minimax.success,
    ];
    const video = start();
    const { job } = await video.create(payer, { model: "m", prompt: "p" });
    expect((await ended(video, job.id)).status).toBe("done");
    await until("the job is settled", () => journal.rows.size === 1);
  });

  test.each([
    ["still makes it: it is owed", [minimax.status("Processing")], 0.06],
    ["has made it: it is owed", [minimax.success], 0.06],
    ["has stopped it: it is free", [minimax.status("Fail")], 0],
    ["cannot be asked at first", [() => new Response("oops", { status: 500 }), minimax.status("Fail")], 0],
  ])("a task that does not finish in time is stopped; the upstream %s", async (_, script, cost) => {
    const { upstream, db, journal, holds, backend, start } = await setUp(fresh);
    upstream.script = [minimax.status("Processing")];
    let cancelled = 0;
    const cancel = async () => {
      cancelled++;
      upstream.script = script;
    };
    Object.assign(backend, { video: Object.assign(Object.create(backend.video!), { cancel }) });
    const video = start();
    const { job } = await video.create(payer, { model: "m", prompt: "p" });
    await until("the job is polled again", () => upstream.polls > 1);
    expect(cancelled).toBe(0);
    await db.run("UPDATE video_jobs SET deadline_at = $1", [new Date(Date.now() - 1).toISOString()]);
    const failed = await ended(video, job.id);
    expect([failed.status, failed.error]).toEqual(["failed", "the job did not finish in time"]);
    await until("it is settled", () => holds.open === 0);
    expect(cancelled).toBeGreaterThan(0);
    expect([...journal.rows.values()]).toEqual(cost === 0 ? [] : [cost]);
    await until("its cost is told", async () => (await video.get(payer.userId, job.id)).cost === cost);
  });

  test("a clip that was finished when nobody looked is delivered, also after the deadline", async () => {
    const { upstream, db, journal, start } = await setUp(fresh);
    upstream.script = [minimax.status("Processing")];
    const before = start();
    const { job } = await before.create(payer, { model: "m", prompt: "p" });
    await until("the job is polled", () => upstream.polls > 0);
    await before.close();
    upstream.script = [minimax.success];
    await db.run("UPDATE video_jobs SET deadline_at = $1", [new Date(Date.now() - 1).toISOString()]);
    const after = start();
    await after.start();
    expect((await ended(after, job.id)).status).toBe("done");
    await until("it is charged", () => journal.rows.size === 1);
  });

  test("cancel works on queued and running jobs, once, for the owner alone", async () => {
    const { upstream, journal, holds, start } = await setUp(fresh);
    upstream.script = [minimax.status("Processing")];
    const video = start();
    const { job } = await video.create(payer, { model: "m", prompt: "p" });
    await until(
      "the job is running",
      async () => (await video.get(payer.userId, job.id)).status === "running",
    );
    const stranger = crypto.randomUUID();
    const forbidden = [
      () => video.get(stranger, job.id),
      () => video.cancel(stranger, job.id),
      () => video.get(payer.userId, "not-a-uuid"),
    ];
    for (const attempt of forbidden) {
      expect(
        await (attempt() as Promise<unknown>).then(
          () => null,
          (error) => error.kind,
        ),
      ).toBe("no_job");
    }
    await video.cancel(payer.userId, job.id);
    expect((await video.get(payer.userId, job.id)).status).toBe("cancelled");
    expect(
      await video.cancel(payer.userId, job.id).then(
        () => null,
        (error) => error.message,
      ),
    ).toContain("cancelled");
    await until("the hold is ended", () => holds.open === 0);
    // The vendor goes on with it, and bills it.
    expect([...journal.rows.values()]).toEqual([0.06]);
    await until("its view says so", async () => (await video.get(payer.userId, job.id)).cost === 0.06);
    expect((await video.get(payer.userId, job.id)).status).toBe("cancelled");
  });

  test("a cancelled job costs nothing only if the vendor says that it made no clip", async () => {
    const { upstream, journal, holds, start } = await setUp(fresh);
    const video = start({ tickMs: 100 });
    const cancelled = async (last: typeof minimax.success): Promise<number> => {
      upstream.script = [minimax.status("Processing")];
      const { job } = await video.create(payer, { model: "m", prompt: "p" });
      await until(
        "the job is running",
        async () => (await video.get(payer.userId, job.id)).status === "running",
      );
      upstream.script = [last];
      const isCancelled = await video.cancel(payer.userId, job.id).then(
        () => true,
        () => false,
      );
      await until("the hold is ended", () => holds.open === 0);
      // Where a poll saw the end first, there was nothing to cancel.
      return isCancelled ? (journal.rows.get(job.id) ?? 0) : cancelled(last);
    };
    expect(await cancelled(minimax.status("Fail"))).toBe(0);
    // It was made before the cancellation came, and its address may be known to whoever asked for it.
    expect(await cancelled(minimax.success)).toBe(0.06);
  });

  test("a job whose backend is gone before it is submitted goes to another one, and is polled there", async () => {
    const { db, backend, start } = await setUp(fresh);
    const elsewhere: Backend = { ...backend, config: { ...backend.config, name: "gone" } };
    const idle = start({ tickMs: 1_000_000, serving: elsewhere });
    const { job } = await idle.create(payer, { model: "m", prompt: "p" });
    await idle.close();
    await db.run("UPDATE video_jobs SET status = 'queued'");
    expect((await ended(start(), job.id)).status).toBe("done");
  });

  test("a process that dies at any state leaves a job that the next one finishes and settles once", async () => {
    const { upstream, db, journal, start } = await setUp(fresh);
    upstream.script = [minimax.status("Processing")];
    // While queued: nothing ran yet.
    const first = start({ tickMs: 1_000_000 });
    const created = await Promise.all([1, 2, 3].map(() => first.create(payer, { model: "m", prompt: "p" })));
    await first.close();
    // Running: the task is known upstream.
    const second = start();
    await until("every job is running", async () =>
      (await second.list(payer.userId, 10)).every(({ status }) => status === "running"),
    );
    await second.close();
    // Done but not settled: the process died before it could record the cost.
    upstream.script = [minimax.success];
    const third = start({
      record: () => {
        throw new Error("killed here");
      },
    });
    await until("every job is done", async () =>
      (await third.list(payer.userId, 10)).every(({ status }) => status === "done"),
    );
    expect(journal.rows.size).toBe(0);
    await third.close();
    // Recorded, but the process died before it could note that: the next one records it again, harmlessly.
    const fourth = start();
    await until("every job is settled", () => journal.rows.size === 3);
    await fourth.close();
    await db.run("UPDATE video_jobs SET settled = FALSE");
    const attempts = journal.attempts;
    const fifth = start();
    await until("each settlement is tried again", () => journal.attempts >= attempts + 3);
    expect([...journal.rows.keys()].sort()).toEqual(created.map(({ job }) => job.id).sort());
    expect(upstream.submissions).toHaveLength(3);
    await fifth.close();
  });

  test("several instances share the work: no job is submitted twice, and a dead one's lease runs out", async () => {
    const { upstream, db, journal, start } = await setUp(fresh);
    upstream.script = [minimax.success];
    const instances = [start(), start(), start()];
    const created = await Promise.all(
      Array.from({ length: 12 }, (_, i) => instances[i % 3]!.create(payer, { model: "m", prompt: `p${i}` })),
    );
    for (const { job } of created) expect((await ended(instances[0]!, job.id)).status).toBe("done");
    expect(upstream.submissions).toHaveLength(12);
    await until("every job is settled", () => journal.rows.size === 12);
    const { job } = await instances[0]!.create(payer, { model: "m", prompt: "orphan" });
    await ended(instances[1]!, job.id);
    // Whoever ended it notes the settlement a moment later, and would do so over what follows.
    await until(
      "no row is left to settle",
      async () => (await db.all("SELECT id FROM video_jobs WHERE settled = FALSE")).length === 0,
    );
    // The second time as if the clock had been set back by hours since.
    for (const afterMs of [300, 2 * 3_600_000]) {
      await db.run(
        "UPDATE video_jobs SET status = 'running', settled = FALSE, next_step_at = $1 WHERE id = $2",
        [new Date(Date.now() + afterMs).toISOString(), job.id],
      );
      await db.run("UPDATE leases SET owner = 'dead', held_until = $1 WHERE name = 'video'", [
        new Date(Date.now() + afterMs).toISOString(),
      ]);
      expect((await ended(instances[1]!, job.id)).status).toBe("done");
      await until("it is settled", async () => {
        const { settled } = (await db.get<{ settled: unknown }>(
          "SELECT settled FROM video_jobs WHERE id = $1",
          [job.id],
        ))!;
        return Boolean(settled);
      });
    }
  });

  test("bad images are refused with their field, and nothing is stored", async () => {
    const { db, start } = await setUp(fresh);
    const video = start();
    const cases: [{ data_base64: string; mime_type: string }[], string][] = [
      [[{ data_base64: PNG, mime_type: "image/gif" }], "images.0.mime_type"],
      [[{ data_base64: PNG, mime_type: "image/jpeg" }], "images.0.data_base64"],
      [[{ data_base64: `data:image/png;base64,${PNG}`, mime_type: "image/png" }], "images.0.data_base64"],
      [
        [
          { data_base64: PNG, mime_type: "image/png" },
          { data_base64: "!!!!", mime_type: "image/png" },
        ],
        "images.1.data_base64",
      ],
      [Array(5).fill({ data_base64: PNG, mime_type: "image/png" }), "images"],
      [[{ data_base64: "A".repeat(15_000_000), mime_type: "image/png" }], "images.0.data_base64"],
    ];
    for (const [images, field] of cases) {
      const error = await video.create(payer, { model: "m", prompt: "p", images }).then(
        () => null,
        (reason) => reason,
      );
      expect([error.kind, error.data.fields]).toEqual(["invalid_params", [field]]);
    }
    expect(await db.all("SELECT id FROM video_jobs")).toEqual([]);
  });
});
