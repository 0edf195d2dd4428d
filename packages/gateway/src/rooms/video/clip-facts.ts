import type { VideoRequest, VideoResult } from "../../backends/contract.ts";

const DEFAULT_DURATION_SECONDS = 5;
const DEFAULT_FRAMES_PER_SECOND = 24;
/** What a clip is believed to have at most: an absurd figure must not become an absurd price. */
const DURATION_SECONDS_MAX = 3_600;
const FRAMES_PER_SECOND_MAX = 240;
const FRAMES_MAX = DURATION_SECONDS_MAX * FRAMES_PER_SECOND_MAX;
const SIDE_MAX = 16_384;

/** What the price of a clip depends on. */
export interface ClipFacts {
  durationSeconds: number;
  width?: number;
  height?: number;
  frames?: number;
}

/** A figure that came from outside; undefined when it is none. */
function figure(value: unknown, most: number): number | undefined {
  const number = typeof value === "number" || typeof value === "string" ? Number(value) : 0;
  return number > 0 ? Math.min(number, most) : undefined;
}

/** The size in a vendor's own words: `1080P`, or `1920*1080`. Only the short side has a price. */
function sizeIn({ resolution, size }: Record<string, unknown>): { width?: number; height?: number } {
  const [, short] = /^(\d{2,5})p$/i.exec(String(resolution)) ?? [];
  const [, width = short, height = short] = /^(\d{2,5})[*x](\d{2,5})$/i.exec(String(size)) ?? [];
  return { width: figure(width, SIDE_MAX), height: figure(height, SIDE_MAX) };
}

/**
 * The facts of a clip: what the upstream reports goes before what was asked for, and that before what `extra` asks
 * the upstream for in its own words, which would else be made and not paid for.
 */
export function clipFacts(request: VideoRequest, result?: VideoResult): ClipFacts {
  const { extra } = request;
  const durationSeconds =
    figure(result?.duration_seconds, DURATION_SECONDS_MAX) ??
    request.durationSeconds ??
    figure(extra.duration, DURATION_SECONDS_MAX) ??
    DEFAULT_DURATION_SECONDS;
  const framesPerSecond = figure(extra.fps, FRAMES_PER_SECOND_MAX) ?? DEFAULT_FRAMES_PER_SECOND;
  const named = sizeIn(extra);
  return {
    durationSeconds,
    width: result?.width ?? request.width ?? named.width,
    height: result?.height ?? request.height ?? named.height,
    frames: Math.max(1, Math.round(figure(extra.frames, FRAMES_MAX) ?? durationSeconds * framesPerSecond)),
  };
}
