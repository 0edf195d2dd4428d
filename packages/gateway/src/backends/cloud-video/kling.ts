import { SignJWT } from "jose";
import { plainName } from "../../kernel/member-name.ts";
import {
  asNumber,
  asObject,
  asText,
  ratioName,
  refusalByStatus,
  succeeded,
  type VideoDialect,
  withExtra,
} from "./dialect.ts";

const TOKEN_SECONDS = 1_800;
const CLOCK_SKEW_SECONDS = 5;

/** Text and image tasks live under different paths, so the path is part of the task id that we keep. */
const KINDS = { text: "text2video", image: "image2video" } as const;

/** Kling takes no size: the mode and the model decide it. An unknown mode leaves the size open. */
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
    return {
      method: "GET",
      path: `/v1/videos/${taskId.slice(0, separator)}/${encodeURIComponent(taskId.slice(separator + 1))}`,
    };
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
    return succeeded(
      list[0]?.url,
      { durationSeconds: asNumber(duration[0]) },
      { duration, video_count: list.length },
    );
  },
  /** A key of the form `access:secret` signs a token; anything else is sent as it is. */
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
