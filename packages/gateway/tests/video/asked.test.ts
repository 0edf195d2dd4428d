import { describe, expect, test } from "bun:test";
import { createCloudVideo } from "../../src/backends/cloud-video/index.ts";
import type { VideoCapability, VideoRequest } from "../../src/backends/contract.ts";
import { engineVideo } from "../../src/backends/engine/protocol.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { askedFacts, boundFacts, madeFacts } from "../../src/rooms/video/clip-facts.ts";

const cloud = (type: string): VideoCapability =>
  createCloudVideo(
    {
      name: "b",
      kind: "cloud-video",
      type,
      dialect: type,
      url: "http://127.0.0.1:1",
      apiKey: null,
      models: [],
    },
    { fetch, clock: systemClock },
  ).video!;
const vendors = {
  minimax: cloud("minimax"),
  "minimax-v2": cloud("minimax-v2"),
  dashscope: cloud("dashscope"),
  kling: cloud("kling"),
  seedance: cloud("seedance"),
  videos: cloud("videos"),
  engine: engineVideo(() => Promise.reject(new Error("nothing is sent"))),
};
type Vendor = keyof typeof vendors;

const factsOf = (vendor: Vendor, change: Partial<VideoRequest>) => {
  const request: VideoRequest = { model: "m", prompt: "a fox", images: [], extra: {}, ...change };
  return askedFacts(request, vendors[vendor].asked(request));
};
const sidesOf = (vendor: Vendor, change: Partial<VideoRequest>) => {
  const { shortSides, sizeUnclear } = factsOf(vendor, change);
  return sizeUnclear ? "unclear" : shortSides.length === 0 ? null : Math.max(...shortSides);
};
const names = Object.keys(vendors) as Vendor[];

describe.each(names)("%s", (vendor) => {
  test("a task that names nothing is as long as the vendor makes it", () => {
    const seconds = vendor.startsWith("minimax") ? 6 : 5;
    expect(factsOf(vendor, {})).toMatchObject({ durationSeconds: seconds, frames: seconds * 24, clips: 1 });
  });

  test("both sides, and one alone, which may be the short one", () => {
    // Kling takes no size and makes 720 at least.
    const least = vendor === "kling" ? 720 : 0;
    expect(sidesOf(vendor, { width: 640, height: 360 })).toBe(Math.max(360, least));
    expect(sidesOf(vendor, { width: 1088 })).toBe(1088);
    expect(sidesOf(vendor, { height: 1920 })).toBe(1920);
    const image = [{ dataBase64: "AAAA", mimeType: "image/png" }];
    expect(sidesOf(vendor, { width: 1920, height: 1080, images: image })).toBe(1080);
  });

  test("what `extra` says in other words, places and spellings counts where it is dearer", () => {
    const extra = { Seconds: "20", video: { num_frames: 1_200, FPS: 60 }, samples: [{ n: 2 }] };
    expect(factsOf(vendor, { durationSeconds: 5, extra })).toMatchObject({
      durationSeconds: 50,
      frames: 3_000,
      clips: 2,
    });
  });

  test("images are no part of it", () => {
    const request = { images: [{ dataBase64: "A".repeat(1_000), mimeType: "image/png" }] };
    expect(
      JSON.stringify(vendors[vendor].asked({ model: "m", prompt: "p", extra: {}, ...request })).length,
    ).toBeLessThan(1_000);
  });
});

/** Names that pass and change nothing about the price. */
const FREE =
  "seed steps cfg watermark prompt_optimizer fast_pretreatment aigc_watermark ratio prompt_extend shot_type audio cfg_scale aspect_ratio camera_control sound camera_fixed return_last_frame generate_audio service_tier guidance_scale guidance_scale_2 num_inference_steps boundary_ratio flow_shift sampler scheduler strength".split(
    " ",
  );
test.each(names)("%s: what `extra` may have is read for its price, or is known to have none", (vendor) => {
  const { known } = vendors[vendor].asked({ model: "m", prompt: "p", images: [], extra: {} });
  const unread = known.filter((name) =>
    Bun.deepEquals(factsOf(vendor, { extra: { [name]: 1_000 } }), factsOf(vendor, {})),
  );
  expect(unread.filter((name) => !FREE.includes(name))).toEqual([]);
});

test("Kling's mode and model decide the size", () => {
  expect(sidesOf("kling", {})).toBe(720);
  expect(sidesOf("kling", { extra: { mode: "std" } })).toBe(720);
  expect(sidesOf("kling", { extra: { mode: "pro" }, width: 16, height: 16 })).toBe(1080);
  expect(sidesOf("kling", { extra: { mode: "std", Mode: "pro" } })).toBe(1080);
  expect(sidesOf("kling", { model: "kling-v2-master" })).toBe(1080);
  expect(sidesOf("kling", { extra: { mode: "4k" } })).toBe("unclear");
  expect(sidesOf("kling", { extra: { mode: "__proto__" } })).toBe("unclear");
});

test("settings at the end of a Seedance prompt count; elsewhere they are only words", () => {
  const prompt = "a fox --resolution 1080p --dur 10 --FPS=48 --seed -1 --ratio 16:9";
  expect(factsOf("seedance", { prompt, durationSeconds: 5 })).toMatchObject({
    durationSeconds: 10,
    frames: 480,
    shortSides: [1080],
    sizeUnclear: false,
  });
  expect(factsOf("seedance", { prompt: "a fox --rs 4k --frames 240" })).toMatchObject({
    durationSeconds: 10,
    shortSides: [2160],
  });
  expect(factsOf("dashscope", { prompt })).toMatchObject({ durationSeconds: 5, shortSides: [] });
});

test("a task without a size is held for at the dearest one", () => {
  expect(boundFacts(factsOf("minimax", {})).sizeUnclear).toBe(true);
  expect(boundFacts(factsOf("minimax", { width: 640 })).sizeUnclear).toBe(false);
});

test("what the upstream says it made is believed where it can be", () => {
  const asked = factsOf("dashscope", { durationSeconds: 5, width: 640, height: 360 });
  const result = { url: "https://x/v.mp4", mime_type: "video/mp4" };
  const made = (made: Record<string, unknown>) => madeFacts(asked, { result, made });
  expect(made({})).toEqual(asked);
  expect(made({ duration: 8, SR: "1080", video_count: 2 })).toMatchObject({
    durationSeconds: 8,
    frames: 192,
    clips: 2,
    shortSides: [1080],
  });
  expect(made({ framespersecond: 48, duration: "8" })).toMatchObject({ frames: 384 });
  const absurd = [1e308, Number.POSITIVE_INFINITY, Number.NaN, -1, 0, "many", null, {}, []];
  for (const value of absurd) {
    const report = { duration: value, fps: value, frames: value, SR: value, n: value, width: value };
    expect(made(report)).toEqual(asked);
  }
});
