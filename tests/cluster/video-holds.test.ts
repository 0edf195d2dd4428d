import { describe, expect, test } from "bun:test";
import { freshDatabase, kinds, openDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax } from "@model-gateway/testing/video.ts";
import { verifyLedger } from "../../packages/gateway/src/rooms/ledger/index.ts";
import { canShare } from "../../packages/gateway/tests/instances/support.ts";
import { ADMIN_TOKEN, Instance } from "./support/cluster.ts";

const MODEL = "clip";
/** No room for the hold of a dead instance and for the one that takes its place. */
const POOL_POINTS = 100;
const JOB_POINTS = 60;
/** How soon after a death another instance holds what the dead one held. */
const HELD_AGAIN_WITHIN_MS = 15_000;
const TEST_WITHIN_MS = 90_000;

type Kind = (typeof kinds)[number];

/** Processes that share a database, a pool of points, and a video that is under way on the first of them. */
async function withHeldJob(
  { kind, redisUrl }: { kind: Kind; redisUrl: string | null },
  work: (stage: {
    instances: Instance[];
    jobId: string;
    groupId: string;
    /** The refusal to move points of the pool away, or null. */
    allocate(on: Instance, points: number): Promise<string | null>;
    /** Lets the upstream finish, and waits until the job is paid. */
    finish(on: Instance): Promise<void>;
  }) => Promise<void>,
): Promise<void> {
  const { options, drop } = await freshDatabase(kind);
  const videos = startMinimax();
  videos.script = [minimax.status("Processing")];
  const env = { SERVICE_DRAIN_GRACE_MS: "0", SERVICE_DRAIN_TIMEOUT_MS: "1000" };
  const instances = Array.from(
    { length: redisUrl === null ? 1 : 2 },
    () => new Instance({ databaseUrl: options.databaseUrl, redisUrl, env }),
  );
  try {
    const [first, ...others] = instances as [Instance, ...Instance[]];
    await first.start();
    const root = await first.signUp("root");
    const backend = { type: "minimax", name: "clips", url: videos.url, models: [MODEL] };
    await first.admin("POST", "/api/admin/backends", backend);
    const price = { model: MODEL, mode: "per_call", base_price: JOB_POINTS / 100 };
    await first.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
    const { id: groupId } = await first.rpc("group.create", { name: "crew" }, root);
    await first.rpc("group.credits.topup", { group_id: groupId, points: POOL_POINTS }, root);
    const { key } = await first.rpc("keys.create", { name: "k", group_id: groupId }, root);
    await until("clips are routable", async () => (await first.models()).includes(MODEL));
    const submitted = await fetch(`${first.url}/v1/video/generations`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: MODEL, prompt: "p" }),
    });
    const { id: jobId } = await submitted.json();
    const job = (on: Instance) => on.rpc("video.get", { job_id: jobId }, root);
    await until("it is under way", async () => (await job(first)).status === "running");
    // Only now, so that it is the first that runs the job.
    for (const instance of others) await instance.start();
    await work({
      instances,
      jobId,
      groupId,
      async allocate(on, points) {
        const params = { group_id: groupId, user_id: "root@example.com", points };
        return on.rpc("group.credits.allocate", params, root).then(
          () => null,
          (error: Error) => error.message,
        );
      },
      async finish(on) {
        videos.script = [minimax.success];
        await until("it is done", async () => (await job(on)).status === "done");
        await until("it is paid", async () => {
          const { balance } = await on.rpc("group.credits.balance", { group_id: groupId }, root);
          return balance === POOL_POINTS - JOB_POINTS;
        });
      },
    });
    expect(videos.submissions).toHaveLength(1);
    const db = await openDatabase({ ...options, dataDir: instances[0]!.dataDir });
    expect((await verifyLedger(db)).problems).toEqual([]);
    const rows = await db.all<{ points: number }>("SELECT points FROM usage_records");
    expect(rows.map(({ points }) => points)).toEqual([JOB_POINTS]);
    await db.close();
  } catch (error) {
    for (const { log } of instances) console.error(log.slice(-4_000));
    throw error;
  } finally {
    for (const instance of instances) await instance.remove();
    videos.stop();
    await drop();
  }
}

describe.each(kinds)("a job's hold, one process on %s", (kind) => {
  test.concurrent.each(["kill -9", "SIGTERM"])(
    "is there again when the process is, after %s",
    (ending) =>
      withHeldJob({ kind, redisUrl: null }, async ({ instances: [process], allocate, finish }) => {
        expect(await allocate(process!, POOL_POINTS - JOB_POINTS + 1)).toContain("hold");
        await (ending === "SIGTERM" ? process!.drain() : process!.kill());
        await process!.start();
        expect(await allocate(process!, POOL_POINTS - JOB_POINTS + 1)).toContain("hold");
        await finish(process!);
      }),
    TEST_WITHIN_MS,
  );
});

describe.if(canShare)("a job's hold over Redis", () => {
  const redisUrl = process.env.TEST_REDIS_URL!;
  /** What each instance holds of the pool, by its name there. */
  const holders = async (redis: Bun.RedisClient, groupId: string): Promise<string[]> => {
    const [purse] = (await redis.send("KEYS", [`gateway:*:hold:group:${groupId}`])) as string[];
    const fields = purse === undefined ? [] : ((await redis.send("HKEYS", [purse])) as string[]);
    return fields.filter((field) => field !== "=");
  };

  test.concurrent(
    "of a dead instance is taken over by another, which ends and settles the job once",
    () =>
      withHeldJob({ kind: "postgres", redisUrl }, async ({ instances, groupId, allocate, finish }) => {
        const [doomed, other] = instances as [Instance, Instance];
        const redis = new Bun.RedisClient(redisUrl);
        const [before] = await holders(redis, groupId);
        expect(await allocate(other, POOL_POINTS - JOB_POINTS + 1)).toContain("hold");
        await doomed.kill();
        await until(
          "another instance holds it",
          async () => (await holders(redis, groupId)).some((holder) => holder !== before),
          HELD_AGAIN_WITHIN_MS,
        );
        expect(await allocate(other, POOL_POINTS - JOB_POINTS + 1)).toContain("hold");
        await finish(other);
        redis.close();
      }),
    TEST_WITHIN_MS,
  );

  test.concurrent(
    "of one that stops in order is taken over at once",
    () =>
      withHeldJob({ kind: "postgres", redisUrl }, async ({ instances, allocate, finish }) => {
        const [leaving, other] = instances as [Instance, Instance];
        await leaving.drain();
        await until("another instance holds it", async () =>
          ((await allocate(other, POOL_POINTS - JOB_POINTS + 1)) ?? "").includes("hold"),
        );
        await finish(other);
      }),
    TEST_WITHIN_MS,
  );
});
