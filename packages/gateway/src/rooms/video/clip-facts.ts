import type { VideoAsked, VideoRequest, VideoResult } from "../../backends/contract.ts";
import { isObject } from "../../kernel/json.ts";
import { CLIP_MEASURES, type ClipMeasure } from "../../kernel/known-fields.ts";
import { plainName } from "../../kernel/member-name.ts";
import type { VideoSize } from "../billing/index.ts";

export type ClipFacts = VideoSize;

/** Assumed if no frame rate is named. */
const DEFAULT_FRAMES_PER_SECOND = 24;
/** Upper bounds: an absurd figure must not become an absurd price. */
const MOST = { seconds: 3_600, framesPerSecond: 240, frames: 3_600 * 240, clips: 100, shortSides: 16_384 };

/** The largest of what is said about a measure, at most the bound. */
const largestUpTo = (most: number, values: readonly number[]): number | undefined =>
  values.length === 0 ? undefined : Math.min(Math.max(...values), most);

/** What a task asks for, at the most expensive reading, so that members that disagree are covered either way. */
export function askedFacts(request: VideoRequest, { members, defaultSeconds }: VideoAsked): ClipFacts {
  const { durationSeconds, width, height } = request;
  const read = readClip({ own: { durationSeconds, width, height }, members });
  const framesNamed = largestUpTo(MOST.frames, read.frames);
  // The lowest rate makes frames last longest; the highest rate puts the most frames into a second.
  const rates = [...read.framesPerSecond, DEFAULT_FRAMES_PER_SECOND];
  const rateLow = Math.max(1, Math.min(...rates));
  const rateHigh = largestUpTo(MOST.framesPerSecond, rates)!;
  const secondsNamed = largestUpTo(MOST.seconds, read.seconds) ?? defaultSeconds;
  const seconds = largestUpTo(MOST.seconds, [secondsNamed, (framesNamed ?? 0) / rateLow])!;
  return {
    durationSeconds: seconds,
    frames: Math.ceil(Math.min(Math.max(seconds * rateHigh, framesNamed ?? 0), MOST.frames)),
    clips: Math.ceil(largestUpTo(MOST.clips, read.clips) ?? 1),
    shortSides: read.shortSides.map((side) => Math.min(side, MOST.shortSides)),
    sizeUnclear: read.sizeUnclear,
  };
}

/** The most that the task can cost: without a size, the model may choose the most expensive one. */
export const boundFacts = (asked: ClipFacts): ClipFacts => ({
  ...asked,
  sizeUnclear: asked.sizeUnclear || asked.shortSides.length === 0,
});

/** What the upstream reports; what it does not report, or an impossible figure, is as asked for. */
export function madeFacts(
  asked: ClipFacts,
  { result, made = {} }: { result: VideoResult; made?: Record<string, unknown> },
): ClipFacts {
  const { duration_seconds, width, height } = result;
  const read = readClip({ result: { duration_seconds, width, height }, made });
  const possible = (measure: "seconds" | "framesPerSecond" | "frames" | "clips") =>
    largest(read[measure].filter((value) => value <= MOST[measure]));
  const seconds = possible("seconds");
  const rate = possible("framesPerSecond") ?? DEFAULT_FRAMES_PER_SECOND;
  const shortSides = read.shortSides.filter((side) => side <= MOST.shortSides);
  return {
    durationSeconds: seconds ?? asked.durationSeconds,
    frames: Math.ceil(possible("frames") ?? (seconds === undefined ? asked.frames : seconds * rate)),
    clips: Math.ceil(possible("clips") ?? asked.clips),
    shortSides: shortSides.length > 0 ? shortSides : asked.shortSides,
    sizeUnclear: shortSides.length === 0 && asked.sizeUnclear,
  };
}

/** Vendors nest two or three levels deep. */
const DEPTH_MAX = 8;

/** Everything that one source says about a video; all values if members disagree. */
export interface ClipReading {
  seconds: number[];
  framesPerSecond: number[];
  frames: number[];
  clips: number[];
  shortSides: number[];
  sizeUnclear: boolean;
}

const SAID_BY = new Map(
  Object.entries(CLIP_MEASURES).flatMap(([said, names]) =>
    names.split(" ").map((name) => [name, said as ClipMeasure]),
  ),
);

const SIDE_OF_WORD = new Map([
  ["sd", 480],
  ["hd", 720],
  ["fhd", 1080],
  ["fullhd", 1080],
  ["2k", 1440],
  ["qhd", 1440],
  ["wqhd", 1440],
  ["4k", 2160],
  ["uhd", 2160],
  ["8k", 4320],
]);

/** No figure is longer, in any spelling. A longer text counts as the largest value. */
const FIGURE_CHARS_MAX = 64;

/** A positive number in any spelling, such as 10, "10", "10s" or "１０"; the largest if there are several. */
function figureIn(value: unknown): number | undefined {
  if (typeof value === "number") return value > 0 && Number.isFinite(value) ? value : undefined;
  if (Array.isArray(value)) return largest(value.map(figureIn));
  if (typeof value !== "string") return undefined;
  if (value.length > FIGURE_CHARS_MAX) return Number.MAX_VALUE;
  const text = value.normalize("NFKC").trim();
  const whole = text === "" ? Number.NaN : Number(text);
  if (!Number.isNaN(whole)) return figureIn(whole);
  return largest(Array.from(text.matchAll(/\d+(?:\.\d+)?/g), ([digits]) => figureIn(Number(digits))));
}

const largest = (values: readonly (number | undefined)[]): number | undefined =>
  values.reduce((most, value) => (value !== undefined && value > (most ?? 0) ? value : most), undefined);

/** The short side of a size; null if it names none, "unclear" if it is not understood. */
function shortSideIn(value: unknown): number | "unclear" | null {
  if (typeof value === "number") return figureIn(value) ?? null;
  if (Array.isArray(value)) {
    const sides = value.map(figureIn).filter((side) => side !== undefined);
    return sides.length === 2 ? Math.min(...sides) : sides.length === 0 ? null : "unclear";
  }
  // `read` looks into objects itself.
  if (typeof value !== "string") return null;
  if (value.length > FIGURE_CHARS_MAX) return "unclear";
  const text = value.normalize("NFKC").toLowerCase().replace(/\s+/g, "");
  if (text === "" || /^\d{1,2}:\d{1,2}$/.test(text)) return null;
  const [, width, height] = /^(\d+)(?:[*x×]|by)(\d+)$/.exec(text) ?? [];
  if (width && height) return figureIn(Math.min(Number(width), Number(height))) ?? null;
  const [, side] = /^(\d+(?:\.\d+)?)(?:p\d{0,3}|px)?$/.exec(text) ?? [];
  if (side) return figureIn(Number(side)) ?? null;
  return SIDE_OF_WORD.get(text.replace(/[^a-z0-9]/g, "")) ?? "unclear";
}

/** Collects what the members say about a video, at any depth and in any spelling. */
export function readClip(members: Record<string, unknown>): ClipReading {
  const nothing = { seconds: [], framesPerSecond: [], frames: [], clips: [], shortSides: [] };
  const reading: ClipReading = { ...nothing, sizeUnclear: false };
  read(members, reading, 0);
  return reading;
}

function read(value: unknown, reading: ClipReading, depth: number): void {
  if (depth > DEPTH_MAX) return;
  if (Array.isArray(value)) for (const entry of value) read(entry, reading, depth + 1);
  if (!isObject(value)) return;
  const widths: number[] = [];
  const heights: number[] = [];
  for (const [key, content] of Object.entries(value)) {
    if (content === null || content === undefined) continue;
    const said = SAID_BY.get(plainName(key));
    if (said === "size" || said === "quality") {
      const side = shortSideIn(content);
      if (typeof side === "number") reading.shortSides.push(side);
      else if (side === "unclear" && said === "size") reading.sizeUnclear = true;
    } else if (said) {
      const figure = figureIn(content);
      if (figure !== undefined) {
        if (said === "width") widths.push(figure);
        else if (said === "height") heights.push(figure);
        else if (said === "milliseconds") reading.seconds.push(figure / 1000);
        else reading[said].push(figure);
      }
    }
    read(content, reading, depth + 1);
  }
  const [width, height] = [largest(widths), largest(heights)];
  // A single side may be the short one.
  if (width !== undefined || height !== undefined)
    reading.shortSides.push(Math.min(width ?? height!, height ?? width!));
}
