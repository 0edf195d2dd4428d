import type { VideoDialect, VideoMode } from "../plot.ts";
import { fold } from "../spelling.ts";

type Json = Record<string, unknown>;

/** What a clip costs, by mode; the same figures are given to the gateway as its video prices. */
export const VIDEO_PRICES = {
  per_call: { base_price: 0.3 },
  per_second_resolution: {
    price_per_second: 0.2,
    resolution_coeff: { "480": 0.5, "720": 1, "1080": 2.5, "*": 0.25 },
  },
  per_frame: { price_per_frame: 0.002 },
} as const;

export const videoModel = (dialect: VideoDialect, mode: VideoMode): string => `clip-${dialect}-${mode}`;

/** A clip as the upstream really makes it. */
export interface Clip {
  mode: VideoMode;
  seconds: number;
  shortSide: number;
  frames: number;
  /** How many of them. */
  copies: number;
}

const DEFAULTS = { seconds: 5, shortSide: 320, fps: 24 };
const SECONDS_MAX = 600;
const COPIES_MAX = 100;

const number = (value: unknown): number | null => {
  const read = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof read === "number" && Number.isFinite(read) && read > 0 ? read : null;
};
const lookUp = (body: Json, name: string): unknown =>
  Object.entries(body).findLast(([key]) => fold(key) === name)?.[1];

/** `1080P`, `1920*1080`, `1280x720`: the shorter side. */
function sideOf(value: unknown): number | null {
  const sides =
    String(value ?? "")
      .match(/\d+/g)
      ?.map(Number) ?? [];
  return sides.length > 0 && Math.min(...sides) > 0 ? Math.min(...sides) : null;
}

/** Reads a task as loosely as the loosest server does: of two sizes it makes the larger one. */
function readTask(body: Json, sizeKeys: readonly string[]): { clip: Omit<Clip, "mode">; isGuess: boolean } {
  const sides = sizeKeys.map((key) => sideOf(lookUp(body, key))).filter((side) => side !== null);
  const seconds = number(lookUp(body, "duration"));
  const fps = number(lookUp(body, "fps")) ?? DEFAULTS.fps;
  const length = Math.min(SECONDS_MAX, seconds ?? DEFAULTS.seconds);
  return {
    clip: {
      seconds: length,
      shortSide: sides.length > 0 ? Math.max(...sides) : DEFAULTS.shortSide,
      frames: number(lookUp(body, "frames")) ?? Math.ceil(length * fps),
      copies: Math.min(COPIES_MAX, Math.max(1, Math.floor(number(lookUp(body, "n")) ?? 1))),
    },
    isGuess: sides.length === 0,
  };
}

/** A side that is not listed pays like the next larger one, or the largest; below all of them it pays the fallback. */
function coefficient(shortSide: number): number {
  const { "*": fallback, ...keyed } = VIDEO_PRICES.per_second_resolution.resolution_coeff;
  const keys = Object.keys(keyed)
    .map(Number)
    .sort((a, b) => a - b);
  if (shortSide < keys[0]!) return fallback;
  const key = keys.find((side) => side >= shortSide) ?? keys.at(-1)!;
  return keyed[String(key) as keyof typeof keyed];
}

/** What a clip is worth in USD. */
export function clipUsd({ mode, seconds, shortSide, frames, copies }: Clip): number {
  switch (mode) {
    case "per_call":
      return copies * VIDEO_PRICES.per_call.base_price;
    case "per_second_resolution":
      return copies * seconds * VIDEO_PRICES.per_second_resolution.price_per_second * coefficient(shortSide);
    case "per_frame":
      return copies * frames * VIDEO_PRICES.per_frame.price_per_frame;
  }
}

export interface VideoTask {
  /** Whether the upstream says what it made where the API lets it. */
  reports: boolean;
  /** What it made; null until it was asked. */
  clip: Clip | null;
}

export interface VideoUpstream {
  url: string;
  /** Tasks by the canary in their prompt. */
  tasks: Map<number, VideoTask>;
  stop(): void;
}

const CANARY = /canary-(\d+)-/;

/** Two vendors' video APIs on one port. Every clip is ready at the first question. */
export function startVideoUpstream(): VideoUpstream {
  const tasks = new Map<number, VideoTask>();
  /** The clip of a task, with the number that it is asked for by. */
  const make = (text: string, body: Json, sizeKeys: readonly string[]): number | null => {
    const canary = Number(CANARY.exec(text)?.[1]);
    const task = tasks.get(canary);
    if (!task) return null;
    const model = String(lookUp(JSON.parse(text) as Json, "model"));
    const mode = (/per_\w+/.exec(model)?.[0] ?? "per_call") as VideoMode;
    const { clip, isGuess } = readTask(body, sizeKeys);
    task.clip = { mode, ...clip };
    // What it chose freely it always tells: nobody else could know.
    task.reports ||= isGuess;
    return canary;
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const url = new URL(request.url);
      if (request.method === "HEAD") return new Response();
      const text = await request.text();
      const path = url.pathname;
      if (path === "/v1/video_generation") {
        const canary = make(text, JSON.parse(text) as Json, ["resolution"]);
        return Response.json({ task_id: `t${canary}`, base_resp: { status_code: 0, status_msg: "success" } });
      }
      if (path.endsWith("/video-synthesis")) {
        const canary = make(text, (JSON.parse(text) as { parameters: Json }).parameters, [
          "resolution",
          "size",
        ]);
        return Response.json({ output: { task_id: `t${canary}`, task_status: "PENDING" }, request_id: "q" });
      }
      const task = tasks.get(Number(/t(\d+)/.exec(url.searchParams.get("task_id") ?? path)?.[1]));
      const { shortSide = 0, seconds = 0 } = (task?.reports && task.clip) || {};
      if (path === "/v1/query/video_generation")
        return Response.json({
          task_id: url.searchParams.get("task_id"),
          status: "Success",
          file_id: "1",
          ...(shortSide && { video_width: Math.round(shortSide * 1.5), video_height: shortSide }),
          base_resp: { status_code: 0 },
        });
      if (path === "/v1/files/retrieve")
        return Response.json({
          file: { download_url: "https://cdn.example/v.mp4" },
          base_resp: { status_code: 0 },
        });
      return Response.json({
        output: { task_status: "SUCCEEDED", video_url: "https://cdn.example/v.mp4" },
        ...(seconds && { usage: { duration: seconds, SR: shortSide, video_count: 1 } }),
      });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, tasks, stop: () => void server.stop(true) };
}
