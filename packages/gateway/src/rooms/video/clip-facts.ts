import type { VideoAsked, VideoRequest, VideoResult } from "../../backends/contract.ts";
import type { VideoSize } from "../billing/index.ts";
import { type ClipReading, readClip } from "./clip-reading.ts";

/** Assumed when no frame rate is named. */
const DEFAULT_FRAMES_PER_SECOND = 24;
/** Upper bounds: an absurd figure must not become an absurd price. */
const DURATION_SECONDS_MAX = 3_600;
const FRAMES_PER_SECOND_MAX = 240;
const FRAMES_MAX = DURATION_SECONDS_MAX * FRAMES_PER_SECOND_MAX;
const SIDE_MAX = 16_384;
const CLIPS_MAX = 100;

export type ClipFacts = VideoSize;

const dearest = (values: readonly number[], most: number): number | undefined =>
  values.length === 0 ? undefined : Math.min(Math.max(...values), most);

/** What a task asks for, at the most expensive reading: if two members disagree, either is covered. */
export function askedFacts(request: VideoRequest, { members, defaultSeconds }: VideoAsked): ClipFacts {
  const { durationSeconds, width, height } = request;
  const read = readClip({ own: { durationSeconds, width, height }, members });
  const framesNamed = dearest(read.frames, FRAMES_MAX);
  // The lowest rate makes frames last longest; the highest rate puts the most frames into a second.
  const rates = [...read.framesPerSecond, DEFAULT_FRAMES_PER_SECOND];
  const rateLow = Math.max(1, Math.min(...rates));
  const rateHigh = dearest(rates, FRAMES_PER_SECOND_MAX)!;
  const seconds = dearest(
    [
      dearest(read.seconds, DURATION_SECONDS_MAX) ?? defaultSeconds,
      framesNamed === undefined ? 0 : framesNamed / rateLow,
    ],
    DURATION_SECONDS_MAX,
  )!;
  return {
    durationSeconds: seconds,
    frames: Math.ceil(Math.min(Math.max(seconds * rateHigh, framesNamed ?? 0), FRAMES_MAX)),
    clips: Math.ceil(dearest(read.clips, CLIPS_MAX) ?? 1),
    shortSides: read.shortSides.map((side) => Math.min(side, SIDE_MAX)),
    sizeUnclear: read.sizeUnclear,
  };
}

/** The most that such a task can cost: without a size, the model may choose the dearest one. */
export const boundFacts = (asked: ClipFacts): ClipFacts => ({
  ...asked,
  sizeUnclear: asked.sizeUnclear || asked.shortSides.length === 0,
});

/** What the upstream reports; where it reports nothing, or something impossible, what was asked for. */
export function madeFacts(
  asked: ClipFacts,
  { result, made = {} }: { result: VideoResult; made?: Record<string, unknown> },
): ClipFacts {
  const { duration_seconds, width, height } = result;
  const read = readClip({ result: { duration_seconds, width, height }, made });
  const seconds = believed(read, "seconds", DURATION_SECONDS_MAX);
  const rate = believed(read, "framesPerSecond", FRAMES_PER_SECOND_MAX) ?? DEFAULT_FRAMES_PER_SECOND;
  const shortSides = read.shortSides.filter((side) => side <= SIDE_MAX);
  return {
    durationSeconds: seconds ?? asked.durationSeconds,
    frames: Math.ceil(
      believed(read, "frames", FRAMES_MAX) ?? (seconds === undefined ? asked.frames : seconds * rate),
    ),
    clips: Math.ceil(believed(read, "clips", CLIPS_MAX) ?? asked.clips),
    shortSides: shortSides.length > 0 ? shortSides : asked.shortSides,
    sizeUnclear: shortSides.length === 0 && asked.sizeUnclear,
  };
}

function believed(
  read: ClipReading,
  measure: "seconds" | "framesPerSecond" | "frames" | "clips",
  most: number,
): number | undefined {
  const possible = read[measure].filter((value) => value <= most);
  return possible.length === 0 ? undefined : Math.max(...possible);
}
