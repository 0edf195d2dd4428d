import { describe, expect, test } from "bun:test";
import { jwtVerify } from "jose";
import {
  type ApiReply,
  asObject,
  dashscope,
  kling,
  minimaxV1,
  minimaxV2,
  type PollReading,
  type Refusal,
  seedance,
  type VideoDialect,
} from "../../src/backends/cloud-video/dialects.ts";
import { chooseDialect } from "../../src/backends/cloud-video/index.ts";
import type { VideoPoll, VideoRequest } from "../../src/backends/contract.ts";
import { plan } from "../../src/backends/index.ts";

const plain: VideoRequest = { model: "m", prompt: "a fox", images: [], extra: {} };
const full: VideoRequest = {
  model: "m",
  prompt: "a fox",
  negativePrompt: "rain",
  images: [
    { dataBase64: "AAAA", mimeType: "image/png" },
    { dataBase64: "BBBB", mimeType: "image/jpeg" },
  ],
  durationSeconds: 6,
  width: 1280,
  height: 720,
  extra: { seed: 7, model: "not this one", prompt: "nor this" },
};
const ok = (body: unknown): ApiReply => ({ status: 200, body });
const video = (url: string, facts = {}, made = {}): VideoPoll => ({
  state: "succeeded",
  result: { url, mime_type: "video/mp4", ...facts },
  made,
});
const noFile: VideoPoll = { state: "failed", error: "the upstream finished without a file" };
const noTask: Refusal = { error: "the upstream named no task", transient: false };
const pending: PollReading = { state: "pending" };

interface Case {
  dialect: VideoDialect;
  submit: [VideoRequest, Record<string, unknown>][];
  submitted: [ApiReply, unknown][];
  polled: [ApiReply, PollReading | Refusal][];
}

const parts = [
  { type: "text", text: "a fox" },
  { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" }, role: "first_frame" },
  { type: "image_url", image_url: { url: "data:image/jpeg;base64,BBBB" }, role: "last_frame" },
];

const cases: Case[] = [
  {
    dialect: minimaxV1,
    submit: [
      [plain, { method: "POST", path: "/v1/video_generation", body: { model: "m", prompt: "a fox" } }],
      [
        full,
        {
          method: "POST",
          path: "/v1/video_generation",
          body: {
            seed: 7,
            model: "m",
            prompt: "a fox",
            duration: 6,
            resolution: "720P",
            first_frame_image: "data:image/png;base64,AAAA",
            last_frame_image: "data:image/jpeg;base64,BBBB",
          },
        },
      ],
    ],
    submitted: [
      [ok({ task_id: "t1", base_resp: { status_code: 0, status_msg: "success" } }), { taskId: "t1" }],
      [
        ok({ base_resp: { status_code: 1008, status_msg: "insufficient balance" } }),
        { error: "insufficient balance (1008)", transient: false },
      ],
      [
        ok({ base_resp: { status_code: 1002, status_msg: "rate limit" } }),
        { error: "rate limit (1002)", transient: true },
      ],
      [
        ok({ base_resp: { status_code: 1024, status_msg: "internal error" } }),
        { error: "internal error (1024)", transient: true },
      ],
      [
        ok({ task_id: "", base_resp: { status_code: 1001, status_msg: "timeout" } }),
        { error: "timeout (1001)", transient: true, unclear: true },
      ],
      [ok({ task_id: "t2", base_resp: { status_code: 1001, status_msg: "timeout" } }), { taskId: "t2" }],
      [ok({}), { error: "the upstream named no task", transient: false }],
      [
        { status: 503, body: null },
        { error: "status 503", transient: true },
      ],
    ],
    polled: [
      [ok({ status: "Preparing", base_resp: { status_code: 0 } }), pending],
      [ok({ status: "Queueing", base_resp: { status_code: 0 } }), pending],
      [ok({ status: "Something new", base_resp: { status_code: 0 } }), pending],
      [
        ok({
          status: "Success",
          file_id: "9007199254740993123",
          video_width: 1366,
          video_height: 768,
          base_resp: { status_code: 0 },
        }),
        { state: "file", fileId: "9007199254740993123", width: 1366, height: 768 },
      ],
      [ok({ status: "Success", base_resp: { status_code: 0 } }), noFile],
      [
        ok({ status: "Fail", base_resp: { status_code: 1027, status_msg: "sensitive output" } }),
        { state: "failed", error: "sensitive output" },
      ],
      [
        ok({ base_resp: { status_code: 1001, status_msg: "timeout" } }),
        { error: "timeout (1001)", transient: true, unclear: true },
      ],
    ],
  },
  {
    dialect: minimaxV2,
    submit: [
      [
        full,
        {
          method: "POST",
          path: "/v2/video_generation",
          body: {
            seed: 7,
            prompt: "nor this",
            model: "m",
            content: parts,
            duration: 6,
            resolution: "720P",
            ratio: "16:9",
          },
        },
      ],
    ],
    submitted: [
      [ok({ task_id: 12 }), { taskId: "12" }],
      [
        {
          status: 400,
          body: { type: "error", error: { type: "bad", message: "bad params (2013)", http_code: "400" } },
        },
        { error: "bad params (2013)", transient: false },
      ],
    ],
    polled: [
      [ok({ task: { status: "queued" } }), pending],
      [ok({ task: { status: "running" } }), pending],
      [
        ok({
          task: {
            status: "succeeded",
            content: { url: "https://x/v.mp4" },
            duration: 6,
            resolution: "2K",
            usage: {},
          },
        }),
        video("https://x/v.mp4", { duration_seconds: 6 }, { duration: 6, resolution: "2K" }),
      ],
      [ok({ task: { status: "succeeded", content: {} } }), noFile],
      [
        ok({ task: { status: "failed", error: { code: "c", message: "no" } } }),
        { state: "failed", error: "no" },
      ],
      [ok({ task: { status: "expired" } }), { state: "failed", error: "the upstream reports expired" }],
      [ok({}), pending],
    ],
  },
  {
    dialect: dashscope,
    submit: [
      [
        { ...full, images: [] },
        {
          method: "POST",
          path: "/api/v1/services/aigc/video-generation/video-synthesis",
          headers: { "x-dashscope-async": "enable" },
          body: {
            model: "m",
            input: { prompt: "a fox", negative_prompt: "rain" },
            parameters: { seed: 7, model: "not this one", prompt: "nor this", size: "1280*720", duration: 6 },
          },
        },
      ],
      [
        { ...full, extra: {} },
        {
          method: "POST",
          path: "/api/v1/services/aigc/video-generation/video-synthesis",
          headers: { "x-dashscope-async": "enable" },
          body: {
            model: "m",
            input: { prompt: "a fox", negative_prompt: "rain", img_url: "data:image/png;base64,AAAA" },
            parameters: { resolution: "720P", duration: 6 },
          },
        },
      ],
    ],
    submitted: [
      [ok({ output: { task_id: "t", task_status: "PENDING" }, request_id: "r" }), { taskId: "t" }],
      [
        { status: 400, body: { code: "InvalidParameter", message: "bad size" } },
        { error: "bad size", transient: false },
      ],
      [
        { status: 429, body: { code: "Throttling" } },
        { error: "Throttling", transient: true },
      ],
    ],
    polled: [
      [ok({ output: { task_status: "PENDING" } }), pending],
      [ok({ output: { task_status: "SUSPENDED" } }), pending],
      [ok({ output: { task_status: "UNKNOWN" } }), pending],
      [
        ok({
          output: { task_status: "SUCCEEDED", video_url: "https://x/v.mp4" },
          usage: { duration: 5, SR: 720, video_count: 1 },
        }),
        video("https://x/v.mp4", { duration_seconds: 5 }, { duration: 5, SR: 720, video_count: 1 }),
      ],
      [ok({ output: { task_status: "SUCCEEDED" } }), noFile],
      [
        ok({ output: { task_status: "FAILED", code: "C", message: "broke" } }),
        { state: "failed", error: "broke" },
      ],
      [
        ok({ output: { task_status: "CANCELED" } }),
        { state: "failed", error: "the upstream reports CANCELED" },
      ],
    ],
  },
  {
    dialect: kling,
    submit: [
      [
        { ...full, images: [] },
        {
          method: "POST",
          path: "/v1/videos/text2video",
          body: {
            seed: 7,
            model: "not this one",
            model_name: "m",
            prompt: "a fox",
            negative_prompt: "rain",
            duration: "6",
            aspect_ratio: "16:9",
          },
        },
      ],
      [
        { ...full, extra: {} },
        {
          method: "POST",
          path: "/v1/videos/image2video",
          body: {
            model_name: "m",
            prompt: "a fox",
            negative_prompt: "rain",
            duration: "6",
            image: "AAAA",
            image_tail: "BBBB",
          },
        },
      ],
    ],
    submitted: [
      [
        ok({ code: 0, message: "ok", data: { task_id: "t", task_status: "submitted" } }),
        { taskId: "text2video/t" },
      ],
      [ok({ code: 1102, message: "no credits" }), { error: "no credits", transient: false }],
    ],
    polled: [
      [ok({ code: 0, data: { task_status: "submitted" } }), pending],
      [ok({ code: 0, data: { task_status: "processing" } }), pending],
      [
        ok({
          code: 0,
          data: {
            task_status: "succeed",
            task_result: { videos: [{ id: "v", url: "https://x/v.mp4", duration: "5.1" }] },
          },
        }),
        video("https://x/v.mp4", { duration_seconds: 5.1 }, { duration: ["5.1"], video_count: 1 }),
      ],
      [ok({ code: 0, data: { task_status: "succeed", task_result: {} } }), noFile],
      [
        ok({ code: 0, data: { task_status: "failed", task_status_msg: "risk control" } }),
        { state: "failed", error: "risk control" },
      ],
    ],
  },
  {
    dialect: seedance,
    submit: [
      [
        { ...full, extra: { watermark: false } },
        {
          method: "POST",
          path: "/api/v3/contents/generations/tasks",
          body: {
            watermark: false,
            model: "m",
            content: parts,
            resolution: "720p",
            ratio: "16:9",
            duration: 6,
          },
        },
      ],
    ],
    submitted: [
      [ok({ id: "cgt-1" }), { taskId: "cgt-1" }],
      [
        { status: 401, body: { error: { code: "AuthenticationError", message: "bad key" } } },
        { error: "bad key", transient: false },
      ],
    ],
    polled: [
      [ok({ id: "cgt-1", status: "running" }), pending],
      [
        ok({ id: "cgt-1", status: "succeeded", content: { video_url: "https://x/v.mp4" } }),
        video("https://x/v.mp4"),
      ],
      [
        ok({ id: "cgt-1", status: "failed", error: { code: "c", message: "no" } }),
        { state: "failed", error: "no" },
      ],
      [
        { status: 500, body: "oops" },
        { error: "status 500", transient: true },
      ],
    ],
  },
];

for (const { dialect, submit, submitted, polled } of cases) {
  describe(dialect.name, () => {
    test.each(submit)("words the request %#", (request, call) => {
      expect(dialect.submit(request)).toEqual(call as never);
    });
    test.each(submitted)("reads the submission %#", (reply, reading) => {
      const refusal = dialect.refusal(reply);
      const taskId = dialect.taskIdIn(asObject(reply.body), dialect.submit(plain));
      const isTaken = taskId !== null && (!refusal || refusal.unclear);
      expect(isTaken ? { taskId } : (refusal ?? noTask)).toEqual(reading as never);
    });
    test.each(polled)("reads the poll %#", (reply, reading) => {
      const read = dialect.readPoll(asObject(reply.body));
      expect(read.state === "failed" ? read : (dialect.refusal(reply) ?? read)).toEqual(reading);
    });
  });
}

test("MiniMax's file step", () => {
  expect(minimaxV1.file!("12").path).toBe("/v1/files/retrieve?file_id=12");
  expect(
    minimaxV1.readFile!({ file: { download_url: "https://x/v.mp4" }, base_resp: { status_code: 0 } }),
  ).toEqual(video("https://x/v.mp4"));
  expect(minimaxV1.readFile!({ file: {}, base_resp: { status_code: 0 } })).toEqual(noFile);
});

test("Kling polls under the path that it submitted to, and signs its token from access:secret", async () => {
  expect(kling.poll("image2video/a b").path).toBe("/v1/videos/image2video/a%20b");
  const nowSeconds = 1_794_000_000;
  const value = await kling.authorization!("ak:sk", nowSeconds);
  const { payload, protectedHeader } = await jwtVerify(value.slice(7), new TextEncoder().encode("sk"), {
    currentDate: new Date(nowSeconds * 1000),
  });
  expect([payload, protectedHeader]).toEqual([
    { iss: "ak", exp: nowSeconds + 1800, nbf: nowSeconds - 5 },
    { alg: "HS256", typ: "JWT" },
  ]);
  expect(await kling.authorization!("plain-key", nowSeconds)).toBe("Bearer plain-key");
});

test("the dialect follows the type, then the host, then the model", () => {
  const pick = (type: string, url: string, model?: string) =>
    chooseDialect({ url, ...plan(type) }, model).name;
  expect(pick("kling", "https://anything.example")).toBe("kling");
  expect(pick("Kling", "https://anything.example")).toBe("kling");
  expect(pick("cloud-video", "https://dashscope-intl.aliyuncs.com")).toBe("dashscope");
  expect(pick("cloud-video", "https://w1.cn-beijing.maas.aliyuncs.com")).toBe("dashscope");
  expect(pick("cloud-video", "https://api.klingai.com")).toBe("kling");
  expect(pick("cloud-video", "https://ark.cn-beijing.volces.com")).toBe("seedance");
  expect(pick("cloud-video", "https://api.minimax.io", "MiniMax-Hailuo-2.3")).toBe("minimax");
  expect(pick("cloud-video", "https://api.minimax.io", "MiniMax-H3")).toBe("minimax-v2");
  expect(pick("cloud-video", "https://evil-klingai.com.example")).toBe("minimax");
});
