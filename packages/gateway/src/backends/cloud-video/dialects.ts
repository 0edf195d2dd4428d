import { SignJWT } from "jose";
import { plainName } from "../../kernel/member-name.ts";
import type { VideoPoll, VideoRequest } from "../contract.ts";

export interface ApiCall {
  method: "GET" | "POST" | "DELETE";
  path: string;
  headers?: Record<string, string>;
  body?: Record<string, unknown>;
  /** The body is sent as a form; this field of it is a data URL, and sent as a file. */
  fileField?: string;
}

export interface ApiReply {
  status: number;
  body: unknown;
}

/** `transient`: try again; otherwise the task has failed. `unclear`: the request may have taken effect anyway. */
export type Refusal = { error: string; transient: boolean; unclear?: boolean };
/** `file`: the task is done, but the address of its file takes another call. */
export type PollReading = VideoPoll | { state: "file"; fileId: string; width?: number; height?: number };

/** One vendor's requests and answers for a video task. Pure: only the backend talks to the network. */
export interface VideoDialect {
  name: string;
  defaultSeconds: number;
  /** Names that `extra` may have, besides `CLIP_FIELDS`. */
  extra: readonly string[];
  submit(request: VideoRequest): ApiCall;
  /** Length and size that the vendor takes from other parts of a submission, such as the prompt. */
  implied?(request: VideoRequest): Json;
  refusal(reply: ApiReply): Refusal | null;
  taskIdIn(body: Json, call: ApiCall): string | null;
  poll(taskId: string): ApiCall;
  /** Also reads the body of a refused poll: some vendors report a failed task that way. */
  readPoll(body: Json): PollReading;
  file?(fileId: string): ApiCall;
  readFile?(body: Json): VideoPoll;
  /** Set if clips stay with the server. */
  content?(taskId: string): ApiCall;
  /** A free call that succeeds on a server with this API. */
  listing?: ApiCall;
  cancel?(taskId: string): ApiCall;
  /** The Authorization header; absent: the key as a bearer. */
  authorization?(apiKey: string, nowSeconds: number): Promise<string>;
}

type Json = Record<string, unknown>;

const get = (path: string): ApiCall => ({ method: "GET", path });

export const asObject = (value: unknown): Json =>
  typeof value === "object" && value !== null ? (value as Json) : {};
/** Ids may be numbers; we only ever send them back as text. */
const asText = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : null;
const asNumber = (value: unknown): number | undefined => {
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
};

function refusalByStatus({ status }: ApiReply, ...messages: readonly unknown[]): Refusal | null {
  if (status < 400) return null;
  const error = messages.map(asText).find((text) => text !== null) ?? `status ${status}`;
  return { error, transient: isTransientStatus(status) };
}

export const isTransientStatus = (status: number): boolean =>
  status === 429 || status === 408 || status >= 500;

const dataUrl = ({ mimeType, dataBase64 }: VideoRequest["images"][number]): string =>
  `data:${mimeType};base64,${dataBase64}`;

/** The short side, e.g. `768P`; undefined when the request names no size. */
function resolutionName({ width, height }: VideoRequest, suffix: "P" | "p"): string | undefined {
  const side = Math.min(width ?? height ?? 0, height ?? width ?? 0);
  return side > 0 ? `${side}${suffix}` : undefined;
}

const greatestDivisor = (a: number, b: number): number => (b === 0 ? a : greatestDivisor(b, a % b));

/** `16:9` for 1280 x 720. */
function ratioName({ width, height }: VideoRequest): string | undefined {
  if (!width || !height) return undefined;
  const divisor = greatestDivisor(width, height);
  return `${width / divisor}:${height / divisor}`;
}

/** Text and images as content parts, for MiniMax v2 and Seedance. */
function contentParts(request: VideoRequest): Json[] {
  const roles = ["first_frame", "last_frame"];
  const images = request.images.slice(0, roles.length).map((image, i) => ({
    type: "image_url",
    image_url: { url: dataUrl(image) },
    role: roles[i],
  }));
  return [{ type: "text", text: request.prompt }, ...images];
}

/** `extra` goes in first: it can add fields but not replace those of the request. */
function withExtra(extra: Json, fields: Json): Json {
  const set = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return { ...extra, ...set };
}

function succeeded(url: unknown, durationSeconds?: number, made: Json = {}): VideoPoll {
  const address = asText(url);
  if (!address || !/^https?:\/\//.test(address))
    return { state: "failed", error: "the upstream finished without a file" };
  return {
    state: "succeeded",
    result: {
      url: address,
      mime_type: "video/mp4",
      ...(durationSeconds && { duration_seconds: durationSeconds }),
    },
    made: withExtra({}, made),
  };
}

const FAILED: readonly string[] = ["failed", "cancelled", "canceled", "expired"];

/** For vendors whose states are queued, running, succeeded, failed, cancelled and expired. */
function readTaskStatus(task: Json, finished: () => VideoPoll): VideoPoll {
  const status = String(task.status ?? "");
  if (status.toLowerCase() === "succeeded") return finished();
  // An unknown status does not end the job: its deadline does.
  if (!FAILED.includes(status.toLowerCase())) return { state: "pending" };
  const { message, code } = asObject(task.error);
  return { state: "failed", error: asText(message) ?? asText(code) ?? `the upstream reports ${status}` };
}

/** The vendor timed out internally: the request may have taken effect anyway. */
const TIMED_OUT = 1001;
/** Codes worth a retry: unknown and internal errors, and rate limits. */
const TRANSIENT_CODES = new Set([1000, TIMED_OUT, 1002, 1024, 1033, 1039, 1041, 2045]);

/** MiniMax reports failures as HTTP 200 with a code of its own. */
function minimaxRefusal(reply: ApiReply): Refusal | null {
  const { status_code, status_msg } = asObject(asObject(reply.body).base_resp);
  const code = asNumber(status_code) ?? 0;
  if (code === 0) return refusalByStatus(reply);
  const error = `${asText(status_msg) ?? "error"} (${code})`;
  return { error, transient: TRANSIENT_CODES.has(code), ...(code === TIMED_OUT && { unclear: true }) };
}

export const minimaxV1: VideoDialect = {
  name: "minimax",
  defaultSeconds: 6,
  extra: ["prompt_optimizer", "fast_pretreatment", "aigc_watermark"],
  submit: (request) => ({
    method: "POST",
    path: "/v1/video_generation",
    body: withExtra(request.extra, {
      model: request.model,
      prompt: request.prompt,
      duration: request.durationSeconds,
      resolution: resolutionName(request, "P"),
      first_frame_image: request.images[0] && dataUrl(request.images[0]),
      last_frame_image: request.images[1] && dataUrl(request.images[1]),
    }),
  }),
  refusal: minimaxRefusal,
  taskIdIn: ({ task_id }) => asText(task_id),
  poll: (taskId) => get(`/v1/query/video_generation?task_id=${encodeURIComponent(taskId)}`),
  readPoll(body) {
    const status = asText(body.status);
    if (status === "Fail") {
      const error = asText(asObject(body.base_resp).status_msg) ?? "the upstream reports Fail";
      return { state: "failed", error };
    }
    if (status !== "Success") return { state: "pending" };
    const fileId = asText(body.file_id);
    if (!fileId) return succeeded(null);
    return { state: "file", fileId, width: asNumber(body.video_width), height: asNumber(body.video_height) };
  },
  file: (fileId) => get(`/v1/files/retrieve?file_id=${encodeURIComponent(fileId)}`),
  readFile: ({ file }) => succeeded(asObject(file).download_url),
};

export const minimaxV2: VideoDialect = {
  name: "minimax-v2",
  defaultSeconds: 6,
  extra: ["ratio"],
  submit: (request) => ({
    method: "POST",
    path: "/v2/video_generation",
    body: withExtra(request.extra, {
      model: request.model,
      content: contentParts(request),
      duration: request.durationSeconds,
      resolution: resolutionName(request, "P"),
      ratio: ratioName(request),
    }),
  }),
  refusal: (reply) => refusalByStatus(reply, asObject(asObject(reply.body).error).message),
  taskIdIn: ({ task_id }) => asText(task_id),
  poll: (taskId) => get(`/v2/query/video_generation/${encodeURIComponent(taskId)}`),
  readPoll(body) {
    const task = asObject(body.task);
    const { duration, resolution } = task;
    return readTaskStatus(task, () =>
      succeeded(asObject(task.content).url, asNumber(duration), { duration, resolution }),
    );
  },
};

export const dashscope: VideoDialect = {
  name: "dashscope",
  defaultSeconds: 5,
  extra: ["size", "prompt_extend", "shot_type", "audio"],
  submit(request) {
    const { prompt, negativePrompt, images, width, height, durationSeconds } = request;
    // An image sets the ratio, so image to video takes a resolution instead of a size.
    const sized = images.length === 0 && width && height;
    return {
      method: "POST",
      path: "/api/v1/services/aigc/video-generation/video-synthesis",
      headers: { "x-dashscope-async": "enable" },
      body: {
        model: request.model,
        input: { prompt, negative_prompt: negativePrompt, img_url: images[0] && dataUrl(images[0]) },
        parameters: withExtra(request.extra, {
          size: sized ? `${width}*${height}` : undefined,
          resolution: sized ? undefined : resolutionName(request, "P"),
          duration: durationSeconds,
        }),
      },
    };
  },
  refusal(reply) {
    const { code, message } = asObject(reply.body);
    return refusalByStatus(reply, message, code);
  },
  taskIdIn: ({ output }) => asText(asObject(output).task_id),
  poll: (taskId) => get(`/api/v1/tasks/${encodeURIComponent(taskId)}`),
  readPoll(body) {
    const output = asObject(body.output);
    const usage = asObject(body.usage);
    return readTaskStatus({ status: output.task_status, error: output }, () =>
      succeeded(output.video_url, asNumber(usage.duration), usage),
    );
  },
  cancel: (taskId) => ({ method: "POST", path: `/api/v1/tasks/${encodeURIComponent(taskId)}/cancel` }),
};

const TOKEN_SECONDS = 1_800;
const CLOCK_SKEW_SECONDS = 5;

/** Text and image tasks have different paths, so our task id includes the path. */
const KINDS = { text: "text2video", image: "image2video" } as const;

const RESOLUTION_OF_MODE = new Map([
  ["std", "720p"],
  ["pro", "1080p"],
]);
const ALWAYS_LARGE = /master/i;

export const kling: VideoDialect = {
  name: "kling",
  defaultSeconds: 5,
  extra: ["mode", "cfg_scale", "aspect_ratio", "camera_control", "sound"],
  implied({ model, extra }) {
    const modes = Object.entries(extra).flatMap(([key, value]) =>
      plainName(key) === "mode" ? [asText(value) ?? ""] : [],
    );
    if (ALWAYS_LARGE.test(model)) modes.push("pro");
    if (modes.length === 0) modes.push("std");
    return { sizes: modes.map((mode) => ({ resolution: RESOLUTION_OF_MODE.get(mode) ?? `mode ${mode}` })) };
  },
  submit(request) {
    const kind = request.images.length > 0 ? KINDS.image : KINDS.text;
    return {
      method: "POST",
      path: `/v1/videos/${kind}`,
      body: withExtra(request.extra, {
        model_name: request.model,
        prompt: request.prompt,
        negative_prompt: request.negativePrompt,
        // Kling wants the number as a string.
        duration: request.durationSeconds === undefined ? undefined : String(request.durationSeconds),
        aspect_ratio: kind === KINDS.text ? ratioName(request) : undefined,
        image: request.images[0]?.dataBase64,
        image_tail: request.images[1]?.dataBase64,
      }),
    };
  },
  refusal(reply) {
    const { code, message } = asObject(reply.body);
    if (reply.status >= 400 || code === undefined || code === 0) return refusalByStatus(reply, message);
    return { error: asText(message) ?? `status ${reply.status}`, transient: false };
  },
  taskIdIn({ data }, call) {
    const taskId = asText(asObject(data).task_id);
    return taskId && `${call.path.endsWith(KINDS.image) ? KINDS.image : KINDS.text}/${taskId}`;
  },
  poll(taskId) {
    const separator = taskId.indexOf("/");
    return get(`/v1/videos/${taskId.slice(0, separator)}/${encodeURIComponent(taskId.slice(separator + 1))}`);
  },
  readPoll(body) {
    const data = asObject(body.data);
    if (data.task_status === "failed") {
      return { state: "failed", error: asText(data.task_status_msg) ?? "the upstream reports failed" };
    }
    if (data.task_status !== "succeed") return { state: "pending" };
    const { videos } = asObject(data.task_result);
    const list = Array.isArray(videos) ? videos.map(asObject) : [];
    const duration = list.map((video) => video.duration);
    return succeeded(list[0]?.url, asNumber(duration[0]), { duration, video_count: list.length });
  },
  /** A key of the form `access:secret` signs a token; other keys are sent unchanged. */
  async authorization(apiKey, nowSeconds) {
    const [accessKey, secret] = apiKey.split(":", 2);
    if (!accessKey || !secret) return `Bearer ${apiKey}`;
    const token = await new SignJWT()
      .setProtectedHeader({ alg: "HS256", typ: "JWT" })
      .setIssuer(accessKey)
      .setExpirationTime(nowSeconds + TOKEN_SECONDS)
      .setNotBefore(nowSeconds - CLOCK_SKEW_SECONDS)
      .sign(new TextEncoder().encode(secret));
    return `Bearer ${token}`;
  },
};

const TASKS = "/api/v3/contents/generations/tasks";
/** Settings in a prompt, such as `--resolution 1080p --dur 10`, which the vendor's models obey. */
const PROMPT_SETTING = /--([a-z_]+)[\s=:]+([^\s-]\S*)/gi;
const LONG_NAMES = new Map([
  ["rs", "resolution"],
  ["dur", "duration"],
]);

export const seedance: VideoDialect = {
  name: "seedance",
  defaultSeconds: 5,
  extra: ["ratio", "framespersecond", "camera_fixed", "return_last_frame", "generate_audio", "service_tier"],
  implied: ({ prompt }) => ({
    settings: Array.from(prompt.matchAll(PROMPT_SETTING), ([, name, value]) => ({
      [LONG_NAMES.get(name!.toLowerCase()) ?? name!]: value,
    })),
  }),
  submit: (request) => ({
    method: "POST",
    path: TASKS,
    body: withExtra(request.extra, {
      model: request.model,
      content: contentParts(request),
      resolution: resolutionName(request, "p"),
      ratio: ratioName(request),
      duration: request.durationSeconds,
    }),
  }),
  refusal(reply) {
    const { message, code } = asObject(asObject(reply.body).error);
    return refusalByStatus(reply, message, code);
  },
  taskIdIn: ({ id }) => asText(id),
  poll: (taskId) => get(`${TASKS}/${encodeURIComponent(taskId)}`),
  readPoll(task) {
    const { duration, resolution, frames, framespersecond } = task;
    return readTaskStatus(task, () =>
      succeeded(asObject(task.content).video_url, undefined, {
        duration,
        resolution,
        frames,
        framespersecond,
      }),
    );
  },
};

const VIDEOS = "/v1/videos";
const videoPath = (taskId: string): string => `${VIDEOS}/${encodeURIComponent(taskId)}`;

/** OpenAI's videos API, which vLLM-Omni and SGLang serve on own GPUs. The clip stays with the server. */
export const videos: VideoDialect = {
  name: "videos",
  defaultSeconds: 5,
  extra: [
    ...["num_frames", "num_inference_steps", "guidance_scale", "guidance_scale_2"],
    ...["boundary_ratio", "flow_shift"],
  ],
  submit: (request) => ({
    method: "POST",
    path: VIDEOS,
    fileField: "input_reference",
    body: withExtra(request.extra, {
      model: request.model,
      prompt: request.prompt,
      negative_prompt: request.negativePrompt,
      input_reference: request.images[0] && dataUrl(request.images[0]),
      seconds: request.durationSeconds,
      size: request.width && request.height ? `${request.width}x${request.height}` : undefined,
    }),
  }),
  refusal(reply) {
    const { error, detail } = asObject(reply.body);
    // A list has one entry per wrong field.
    const first = Array.isArray(detail) ? JSON.stringify(detail[0]) : undefined;
    return refusalByStatus(reply, asObject(error).message, detail, first);
  },
  listing: get(`${VIDEOS}?limit=1`),
  taskIdIn: ({ id }) => asText(id),
  poll: (taskId) => get(videoPath(taskId)),
  readPoll(task) {
    const { status, seconds, size, num_frames, fps } = task;
    const progress = asNumber(task.progress);
    const reading = readTaskStatus(
      { ...task, status: status === "completed" ? "succeeded" : status },
      () => ({
        state: "succeeded",
        result: { url: "", mime_type: "video/mp4" },
        made: withExtra({}, { seconds, size, num_frames, fps }),
      }),
    );
    return reading.state === "pending" && progress !== undefined ? { ...reading, progress } : reading;
  },
  content: (taskId) => ({
    ...get(`${videoPath(taskId)}/content`),
    headers: { accept: "video/*", "accept-encoding": "identity" },
  }),
  cancel: (taskId) => ({ method: "DELETE", path: videoPath(taskId) }),
};
