import { isObject } from "../../kernel/json.ts";
import { CLIP_MEASURES, type ClipMeasure } from "../../kernel/known-fields.ts";
import { plainName } from "../../kernel/member-name.ts";

/** Vendors nest two or three levels deep. */
const DEPTH_MAX = 8;

/** Everything that one source says about a video; all values where members disagree. */
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

/** No figure is longer, however it is spelt. What a longer text makes of itself is taken to be the most. */
const FIGURE_CHARS_MAX = 64;

/** A positive number in any spelling: 10, "10", "10s", "１０"; the largest if there are several. */
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

/** The short side of a size; null when it names none, "unclear" when it is not understood. */
function shortSideIn(value: unknown): number | "unclear" | null {
  if (typeof value === "number") return figureIn(value) ?? null;
  if (Array.isArray(value)) {
    const sides = value.map(figureIn).filter((side) => side !== undefined);
    return sides.length === 2 ? Math.min(...sides) : sides.length === 0 ? null : "unclear";
  }
  // The members of an object are read one by one.
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

const empty = (): ClipReading => ({
  seconds: [],
  framesPerSecond: [],
  frames: [],
  clips: [],
  shortSides: [],
  sizeUnclear: false,
});

/** Collects what the members say about a video, at any depth and in any spelling. */
export function readClip(members: Record<string, unknown>): ClipReading {
  const reading = empty();
  read(members, reading, 0);
  return reading;
}

function read(value: unknown, reading: ClipReading, depth: number): void {
  if (depth > DEPTH_MAX) return;
  if (Array.isArray(value)) for (const entry of value) read(entry, reading, depth + 1);
  if (!isObject(value)) return;
  const widths: (number | undefined)[] = [];
  const heights: (number | undefined)[] = [];
  for (const [key, content] of Object.entries(value)) {
    if (content === null || content === undefined) continue;
    const said = SAID_BY.get(plainName(key));
    if (said === "width") widths.push(figureIn(content));
    else if (said === "height") heights.push(figureIn(content));
    else if (said === "size" || said === "quality") readSize(content, reading, said === "size");
    else if (said) readMeasure(said, content, reading);
    read(content, reading, depth + 1);
  }
  const [width, height] = [largest(widths), largest(heights)];
  // A single side may be the short one.
  if (width !== undefined || height !== undefined)
    reading.shortSides.push(Math.min(width ?? height!, height ?? width!));
}

function readSize(content: unknown, reading: ClipReading, mustBeSize: boolean): void {
  const side = shortSideIn(content);
  if (typeof side === "number") reading.shortSides.push(side);
  else if (side === "unclear" && mustBeSize) reading.sizeUnclear = true;
}

function readMeasure(
  said: Exclude<ClipMeasure, "width" | "height" | "size" | "quality">,
  content: unknown,
  reading: ClipReading,
): void {
  const figure = figureIn(content);
  if (figure === undefined) return;
  if (said === "milliseconds") reading.seconds.push(figure / 1000);
  else reading[said].push(figure);
}
