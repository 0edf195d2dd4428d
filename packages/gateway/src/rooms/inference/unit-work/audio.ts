import { z } from "zod";
import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { estimateTokens } from "../../metering/index.ts";
import { type AnswerBody, requireText } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import type { Payload } from "../request/payload.ts";
import { FormPayload } from "./form-payload.ts";
import { known, type WorkKind } from "./kind.ts";
import { secondsMax, secondsOf } from "./seconds.ts";

/** Slow speech is ten characters a second, and a second is about twenty tokens. */
const SPEECH_TOKENS_PER_CHARACTER = 2;
/** An audio token is 100 ms; nobody speaks more than ten text tokens a second. */
const INPUT_TOKENS_PER_SECOND = 10;
const OUTPUT_TOKENS_PER_SECOND = 10;
/** A day; no sound that fits into a request is longer. */
const SECONDS_MAX = 24 * 3_600;
const PROVIDER = z.string().optional().describe("Only this backend, or backends of this kind");

export const speech: WorkKind = {
  path: "/audio/speech",
  summary: "A text, spoken; the answer is the sound as it is made, or an event stream",
  capability: "speech",
  form: "never",
  body: z.object({
    model: z.string(),
    input: z.string().describe("What is said"),
    response_format: z.string().nullish(),
    ...known("voice instructions speed stream_format language user"),
    provider: PROVIDER,
  }),
  response: z.string().describe("The sound, in the format that was asked for"),
  responseType: "audio/mpeg",
  isStreamed: true,
  read(payload): AskedWork {
    const input = payload.sent("input");
    if (typeof input !== "string" || input === "") return failField("input", "is required: the text to say");
    const instructions = payload.sent("instructions");
    const character = input.length + (typeof instructions === "string" ? instructions.length : 0);
    const speed = Number(payload.sent("speed") ?? 1);
    if (!(speed > 0)) return failField("speed", "must be a number above 0");
    return {
      units: ["character", "call"],
      counts: { character, call: 1 },
      isForm: false,
      promptTokens: 0,
      // At half speed a text lasts twice as long.
      outputTokens: Math.ceil((input.length * SPEECH_TOKENS_PER_CHARACTER) / Math.min(1, speed)),
    };
  },
  made: () => ({}),
};

/** Holds for the longest sound that the bytes can contain, whatever the header says. Charges our own reading of the frames if the upstream reports no length. */
async function readSound(payload: Payload): Promise<AskedWork> {
  if (!(payload instanceof FormPayload))
    return failField("file", "is required: send the sound as multipart/form-data");
  const sound = payload.files.find(({ name }) => name === "file");
  if (!sound) return failField("file", "is required: the sound to write down");
  const promptTokens = estimateTokens(String(payload.value("prompt") ?? ""));
  const sizeOf = (second: number) => ({
    counts: { second, call: 1 },
    promptTokens: promptTokens + Math.ceil(second * INPUT_TOKENS_PER_SECOND),
    outputTokens: Math.ceil(second * OUTPUT_TOKENS_PER_SECOND),
  });
  const seconds = await secondsOf(sound.bytes);
  return {
    units: ["second", "call"],
    ...sizeOf(Math.max(seconds, secondsMax(sound.bytes))),
    isForm: true,
    isWords: !/^$|json$/.test(String(payload.value("response_format") ?? "")),
    counted: sizeOf(seconds),
  };
}

/** `usage.seconds`, or `duration` in verbose JSON; a number, or a number as text. */
function reportedSeconds(parsed: unknown): unknown {
  if (!isObject(parsed)) return null;
  const { usage, duration } = parsed;
  const reported = isObject(usage) && usage.seconds !== undefined ? usage.seconds : duration;
  return typeof reported === "string" && reported.trim() !== "" ? Number(reported) : (reported ?? null);
}

function madeOfSound({ parsed }: AnswerBody): Made {
  requireText(parsed);
  const second = reportedSeconds(parsed);
  if (second === null) return {};
  if (typeof second === "number" && second >= 0 && second <= SECONDS_MAX) return { counts: { second } };
  const shown = JSON.stringify(second)?.slice(0, 32);
  return { problem: `a sound of ${shown} seconds; the gateway's own count was charged instead` };
}

export const transcriptions: WorkKind = {
  path: "/audio/transcriptions",
  summary: "What is said in a sound, as JSON, text or an event stream",
  capability: "transcription",
  form: "required",
  files: ["file"],
  body: z.object({
    model: z.string(),
    file: z.unknown().describe("The sound"),
    response_format: z.string().optional(),
    ...known(
      "language prompt temperature stream chunking_strategy include[] " +
        "timestamp_granularities[] known_speaker_names[] known_speaker_references[] user",
    ),
    provider: PROVIDER,
  }),
  response: z.looseObject({ text: z.string() }),
  events: z.looseObject({ type: z.string() }),
  read: readSound,
  made: madeOfSound,
};
