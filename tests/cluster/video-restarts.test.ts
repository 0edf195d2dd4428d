import { describe, expect, test } from "bun:test";
import { kinds } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { MODELS, VideoStage } from "./support/video-stage.ts";

/** As many steps as one process takes at a time: when all of them stand still, the next job stays queued. */
const STEPS_MAX = 16;
const POLL_HELD = Array.from({ length: STEPS_MAX - 3 }, (_, i) => `poll-held-${i}`);
const TEST_WITHIN_MS = 180_000;
const LOST = "the answer to the submission was lost";

type Ending = "kill -9" | "SIGTERM";

/** What becomes of the job that stood in this state. A process that may still say goodbye waits for submissions. */
const outcomesAfter = (ending: Ending): Record<string, { status: string; submits: number }> => {
  const done = { status: "done", submits: 1 };
  const cancelled = { status: "cancelled", submits: 1 };
  return {
    queued: done,
    // Sent, but the answer never came: it is not sent again, because it may have been taken.
    submitting: ending === "kill -9" ? { status: "failed", submits: 1 } : done,
    "submitting-cancelled": cancelled,
    "pending-polls": done,
    ...Object.fromEntries(POLL_HELD.map((prompt) => [prompt, done])),
    "file-held": done,
    "unsettled-in-journal": done,
    "unsettled-in-books": done,
    "settled-in-journal": done,
    "running-cancelled": cancelled,
    failing: { status: "failed", submits: 1 },
  };
};

/** Jobs that ended upstream: recorded or not, noted as settled or not. The returned function takes away what held them. */
async function endSome(stage: VideoStage): Promise<() => Promise<void>> {
  const { videos } = stage;
  const allowSettled = await stage.refuseSettled("unsettled");
  videos.failing.add("failing");
  await stage.create("unsettled-in-books");
  await stage.create("failing");
  await until("its row is written", () => stage.hasRow("unsettled-in-books"));
  const showUsage = await stage.hideUsage();
  await stage.create("unsettled-in-journal");
  await stage.create("settled-in-journal");
  await stage.untilStatus("unsettled-in-journal", "done");
  await until("it is settled", () => stage.isSettled("settled-in-journal"));
  await stage.untilStatus("failing", "failed");
  return async () => {
    await showUsage();
    expect(await stage.isSettled("unsettled-in-books")).toBe(false);
    expect(await stage.isSettled("unsettled-in-journal")).toBe(false);
    expect(await stage.hasRow("unsettled-in-journal")).toBe(false);
    expect(await stage.hasRow("settled-in-journal")).toBe(false);
    await allowSettled();
  };
}

/** Jobs that stand still in the middle of a step. */
async function holdSome(stage: VideoStage): Promise<void> {
  const { videos } = stage;
  videos.pending.add("pending-polls").add("running-cancelled");
  await stage.create("pending-polls");
  await stage.create("running-cancelled", MODELS.dashscope);
  await stage.untilStatus("running-cancelled", "running");
  await until("it is polled", () => videos.count("poll", "pending-polls") > 0);

  for (const prompt of POLL_HELD) videos.hold("poll", prompt);
  videos.hold("file", "file-held");
  for (const prompt of [...POLL_HELD, "file-held"]) await stage.create(prompt);
  await until("their polls are held", () => POLL_HELD.every((prompt) => videos.isHeld("poll", prompt)));
  await until("the file is held", () => videos.isHeld("file", "file-held"));
  for (const prompt of ["submitting", "submitting-cancelled"]) {
    videos.hold("submit", prompt);
    await stage.create(prompt, MODELS.dashscope);
    await until("the submission is held", () => videos.isHeld("submit", prompt));
  }
  await stage.cancel("submitting-cancelled");
  videos.hold("cancel", "running-cancelled");
  await stage.cancel("running-cancelled");
  await until("the upstream is being told", () => videos.isHeld("cancel", "running-cancelled"));
  await stage.create("queued");
}

async function endProcess(stage: VideoStage, ending: Ending): Promise<void> {
  const { videos, instance } = stage;
  if (ending === "kill -9") {
    await instance.kill();
  } else {
    const exit = instance.drain();
    await until("it gives its polls up", () => videos.wasLeft("poll", POLL_HELD[0]!));
    expect(videos.wasLeft("submit", "submitting")).toBe(false);
    videos.letGo(["submit"]);
    expect(await exit).toBe(0);
  }
  expect(videos.count("submit", "queued")).toBe(0);
  videos.letGo();
  videos.pending.clear();
}

describe.each([...kinds])("video jobs of a process on %s", (kind) => {
  test.concurrent.each(["kill -9", "SIGTERM"] satisfies Ending[])(
    "%s at every state: each job ends as it should, and is paid for once or not at all",
    (ending) =>
      VideoStage.with(kind, async (stage) => {
        const { videos } = stage;
        const release = await endSome(stage);
        await holdSome(stage);
        expect(await stage.status("submitting")).toBe("queued");
        const toldBefore = videos.count("cancel", "running-cancelled");
        await endProcess(stage, ending);
        await release();
        await stage.restart();
        await stage.finish();
        expect(await stage.outcomes()).toEqual(outcomesAfter(ending));
        await stage.checkBooks();
        if (ending === "kill -9") {
          expect((await stage.view("submitting")).error).toContain(LOST);
          // Nobody knows whether the held call was heard, so the upstream is told again.
          expect(videos.count("cancel", "running-cancelled")).toBeGreaterThan(toldBefore);
        } else {
          expect(videos.count("cancel", "submitting-cancelled")).toBeGreaterThan(0);
        }
      }),
    TEST_WITHIN_MS,
  );

  test.concurrent(
    "kill -9 among the last answers: whatever was written by then, each job is paid for once",
    () =>
      VideoStage.with(kind, async (stage) => {
        const { videos, db } = stage;
        const prompts = Array.from({ length: STEPS_MAX }, (_, i) => `last-${i}`);
        for (const prompt of prompts) videos.hold("file", prompt);
        for (const prompt of prompts) await stage.create(prompt);
        await until("all wait for a file", () => prompts.every((prompt) => videos.isHeld("file", prompt)));
        videos.letGo();
        const firstDone = "SELECT id FROM video_jobs WHERE status = 'done'";
        await until("the first is done", async () => (await db.get(firstDone)) !== null);
        await stage.instance.kill();
        await stage.restart();
        await stage.finish();
        const done = { status: "done", submits: 1 };
        expect(await stage.outcomes()).toEqual(Object.fromEntries(prompts.map((prompt) => [prompt, done])));
        await stage.checkBooks();
      }),
    TEST_WITHIN_MS,
  );
});
