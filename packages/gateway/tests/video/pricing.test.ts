import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";

const SECONDS = "clip-seconds";
const FRAMES = "clip-frames";
/** A cent a frame: ten seconds are 2.40 USD. */
const DEAR_FRAMES = "clip-dear-frames";
const PER_SECOND_USD = 0.01;
const PER_FRAME_USD = 0.000_1;

let gateway: TestGateway;
let upstream: VideoUpstream;
let who: string;
let key: string;
beforeAll(async () => {
  gateway = await bootGateway({ config: { apiRateLimitRpm: 10_000 } });
  upstream = startMinimax();
  who = await gateway.signIn("wily");
  ({ key } = await gateway.rpc("keys.create", { name: "k" }, who));
  await gateway.rpc("billing.plan.set", { user_email: "wily@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({
      type: "minimax",
      name: "hailuo",
      url: upstream.url,
      models: [SECONDS, FRAMES, DEAR_FRAMES],
      // What an operator lets through is read as what it says, in every spelling.
      fields: [
        "DURATION_SECONDS",
        "Duration",
        "FPS",
        "Frames",
        "Height",
        "Width",
        "\u017feconds",
        "durationMs",
        "frame_rate",
        "n",
        "num_frames",
        "parameters",
        "sampleCount",
        "size",
      ],
    }),
  });
  for (const price of [
    {
      model: SECONDS,
      price_per_second: PER_SECOND_USD,
      resolution_coeff: { "720": 2, "1080": 3, "*": 1 },
    },
    { model: FRAMES, mode: "per_frame", price_per_frame: PER_FRAME_USD },
    { model: DEAR_FRAMES, mode: "per_frame", price_per_frame: 0.01 },
  ])
    await gateway.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
  await until(async () =>
    (await fetch(`${gateway.url}/v1/models`)).text().then((text) => text.includes(FRAMES)),
  );
});
afterAll(async () => {
  await gateway.stop();
  upstream.stop();
});

async function until(ready: () => boolean | Promise<boolean>) {
  for (const deadline = Date.now() + 20_000; !(await ready()); await Bun.sleep(20))
    if (Date.now() > deadline) throw new Error("did not happen");
}
const submit = (body: string) =>
  fetch(`${gateway.url}/v1/video/generations`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body,
  });

/** What finished jobs of these bodies cost, all under way at once. */
async function costsOf(bodies: readonly string[]): Promise<number[]> {
  const ids: string[] = [];
  for (const body of bodies) {
    const response = await submit(body);
    expect([body, response.status]).toEqual([body, 200]);
    ids.push((await response.json()).id);
  }
  const job = (job_id: string) => gateway.rpc("video.get", { job_id }, who);
  const costs: number[] = [];
  for (const id of ids) {
    await until(async () => (await job(id)).status === "done");
    costs.push((await job(id)).cost);
  }
  return costs;
}

/** JSON texts rather than objects: some of what a client may send cannot be written otherwise. */
const bodyOf = (model: string, members: string) =>
  `{"model":"${model}","prompt":"p"${members === "" ? "" : `,${members}`}}`;
const extra = (members: string) => `"extra":{${members}}`;

describe("what is sent upstream is paid for, at the dearest reading", () => {
  // This answer names no size and no duration.
  const silent = [minimax.status("Success", { file_id: "9007199254740993" })];
  // MiniMax makes six seconds of a task that names none.
  const seconds: [members: string, seconds: number, coefficient: number][] = [
    ["", 6, 1],
    ['"duration_seconds":10', 10, 1],
    [extra('"duration":10,"resolution":"1080P"'), 10, 3],
    [extra('"duration":"10","size":"1920*1080"'), 10, 3],
    [extra('"duration":" 10s "'), 10, 1],
    [extra('"duration":"１０"'), 10, 1],
    [extra('"duration":1e1'), 10, 1],
    [`"duration_seconds":5,${extra('"Duration":10')}`, 10, 1],
    [`"duration_seconds":5,${extra('"DURATION_SECONDS":10')}`, 10, 1],
    [`"duration_seconds":5,${extra('"\\u017feconds":10')}`, 10, 1],
    [`"duration_seconds":5,${extra('"durationMs":10000')}`, 10, 1],
    [`"duration_seconds":5,${extra('"parameters":{"video":[{"duration":10}]}')}`, 10, 1],
    // What cannot be a duration leaves the default.
    [extra('"duration":0'), 6, 1],
    [extra('"duration":-1'), 6, 1],
    [extra('"duration":1e999'), 6, 1],
    [extra('"duration":"long"'), 6, 1],
    [extra('"duration":true,"resolution":{}'), 6, 1],
    [extra('"duration":1e308'), 3600, 1],
    // Frames last.
    [extra('"frames":240'), 10, 1],
    [extra('"num_frames":"240","fps":12'), 20, 1],
    [extra('"frames":240,"fps":240'), 10, 1],
    [extra('"frames":240,"fps":0.000001'), 240, 1],
    [extra('"frames":1'), 6, 1],
    // Sides, one or two, and sides that are not a key.
    ['"width":1920,"height":1080', 6, 3],
    ['"width":1080', 6, 3],
    ['"height":1088', 6, 3],
    ['"width":1088,"height":1920', 6, 3],
    ['"width":1072,"height":1920', 6, 3],
    ['"width":721,"height":721', 6, 3],
    ['"width":500,"height":500', 6, 1],
    [`"width":500,"height":500,${extra('"Width":1920,"Height":1080')}`, 6, 3],
    [`"width":500,"height":500,${extra('"size":"1080x1920"')}`, 6, 3],
    [extra('"resolution":720'), 6, 2],
    [extra('"resolution":"HD"'), 6, 2],
    [extra('"resolution":" 720p "'), 6, 2],
    [extra('"resolution":"1080p60"'), 6, 3],
    [extra('"resolution":"4K"'), 6, 3],
    [extra('"resolution":[1920,1080]'), 6, 3],
    [extra('"resolution":{"width":1920,"height":1080}'), 6, 3],
    [extra('"resolution":"16:9"'), 6, 1],
    // Unknown words may mean anything.
    [extra('"resolution":"cinema"'), 6, 3],
    [extra('"resolution":"constructor"'), 6, 3],
    [extra('"size":"60/1080"'), 6, 3],
  ];
  test("seconds and sizes", async () => {
    upstream.script = silent;
    const costs = await costsOf(seconds.map(([members]) => bodyOf(SECONDS, members)));
    const rounded = (cost: number) => Math.round(cost * 1e6) / 1e6;
    expect(seconds.map(([members], i) => [members, costs[i]])).toEqual(
      seconds.map(([members, duration, coefficient]) => [
        members,
        rounded(duration * PER_SECOND_USD * coefficient),
      ]),
    );
  }, 60_000);

  const frames: [members: string, frames: number][] = [
    ["", 144],
    [extra('"fps":48'), 288],
    [extra('"fps":"48"'), 288],
    [extra('"frame_rate":48'), 288],
    [extra('"FPS":1e308'), 1_440],
    [extra('"fps":-24'), 144],
    [extra('"fps":1'), 144],
    [extra('"frames":12'), 144],
    [extra('"frames":240'), 240],
    [extra('"frames":-1000000'), 144],
    [extra('"frames":0.1'), 144],
    [extra('"frames":1e308'), 864_000],
    [`"duration_seconds":10,${extra('"frames":12')}`, 240],
    [`"duration_seconds":10,${extra('"fps":30,"frames":12')}`, 300],
    [extra('"n":4'), 4 * 144],
    [extra('"sampleCount":"2","n":1'), 2 * 144],
    [extra('"n":-4'), 144],
    [extra('"n":1e308'), 100 * 144],
  ];
  test("frames, and several videos of one task", async () => {
    upstream.script = silent;
    const costs = await costsOf(frames.map(([members]) => bodyOf(FRAMES, members)));
    expect(frames.map(([members], i) => [members, Math.round(costs[i]! / PER_FRAME_USD)])).toEqual(frames);
  }, 60_000);

  test("ten seconds cost 2.40 USD however `extra` counts their frames", async () => {
    upstream.script = silent;
    const ways = ['"frames":1', '"fps":0.1', '"frames":1,"fps":1', '"num_frames":1,"Frames":"1"'];
    expect(
      await costsOf(ways.map((way) => bodyOf(DEAR_FRAMES, `"duration_seconds":10,${extra(way)}`))),
    ).toEqual(ways.map(() => 2.4));
  }, 30_000);
});

describe("what comes back is paid for where it is more", () => {
  const came = (more: Record<string, unknown>) =>
    minimax.status("Success", { file_id: "9007199254740993", ...more });
  const cases: [members: string, more: Record<string, unknown>, coefficient: number][] = [
    ["", { video_width: 1920, video_height: 1080 }, 3],
    ["", { video_width: "1280", video_height: "720" }, 2],
    ['"width":640,"height":360', { video_width: 1920, video_height: 1088 }, 3],
    // Less than was asked for, or what cannot be.
    ['"width":1920,"height":1080', { video_width: 640, video_height: 360 }, 3],
    ["", { video_width: 1e308, video_height: 1e308 }, 1],
    ["", { video_width: -1920, video_height: -1080 }, 1],
    ["", { video_width: 0, video_height: "many" }, 1],
  ];
  test.each(cases)("asked for {%s}, made %p", async (members, more, coefficient) => {
    upstream.script = [came(more)];
    const [cost] = await costsOf([bodyOf(SECONDS, members)]);
    expect(cost).toBe(Math.round(6 * PER_SECOND_USD * coefficient * 1e6) / 1e6);
  });
});

describe("bad figures in the client's own fields", () => {
  const bad = [
    ["duration_seconds", ["0", "-1", "1.5", '"6"', "601", "1e308", "1e999", "true", "[6]"]],
    ["width", ["0", "-720", "15", "16385", "720.5", '"720"', "1e308", "{}"]],
    ["height", ["0", "-720", "15", "16385", "720.5", '"720"', "1e308", "{}"]],
  ] as const;
  test.each(bad)("%s: 400 that names it, on both surfaces", async (field, values) => {
    for (const value of values) {
      const response = await submit(bodyOf(SECONDS, `"${field}":${value}`));
      const { error } = await response.json();
      expect([value, response.status, error.message.includes(`\`${field}\``)]).toEqual([value, 400, true]);
      const params = JSON.parse(bodyOf(SECONDS, `"${field}":${value}`));
      const rpc = await gateway.call("video.create", params, who);
      // Infinity is null in JSON, which stands for a field that was left out.
      if (value !== "1e999")
        expect([value, rpc.error]).toMatchObject([
          value,
          { code: -32602, data: { fields: expect.arrayContaining([field]) } },
        ]);
    }
  });

  test("what `extra` may not have is refused, and the refusal lists what it may", async () => {
    const before = upstream.submissions.length;
    for (const name of ["callback_url", "webhook", "notify_hook", "num_outputs"]) {
      const response = await submit(bodyOf(SECONDS, extra(`"${name}":"https://x.test"`)));
      const { error } = await response.json();
      expect([name, response.status]).toEqual([name, 400]);
      expect(error.message).toContain("known are seed, steps, cfg");
    }
    expect(upstream.submissions.length).toBe(before);
  });

  test("a model in `extra` is not sent, and one in other letters is refused", async () => {
    upstream.script = [minimax.success];
    const before = upstream.submissions.length;
    await costsOf([bodyOf(SECONDS, extra('"model":"dear","model_name":"dear","model_id":"dear"'))]);
    expect(upstream.submissions.slice(before)).toEqual([{ model: SECONDS, prompt: "p" }]);
    for (const name of ["Model", "MODEL", "ｍodel", "model-name", "Model_Name", "modelId"]) {
      const response = await submit(bodyOf(SECONDS, extra(`"${name}":"dear"`)));
      const { error } = await response.json();
      expect([name, response.status]).toEqual([name, 400]);
      expect(error.message).toContain(`\`extra.${name}\``);
    }
  });
});
