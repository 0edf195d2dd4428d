import { z } from "zod";
import type { PostedCapability } from "../../../backends/contract.ts";
import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { isPlausible } from "../../../kernel/usage-parts.ts";
import { estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import { type AnswerBody, requireList, requireText } from "../call/answer.ts";
import type { AskedWork, Made } from "../call/cost.ts";
import { spendNumber } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import { FormPayload } from "./form.ts";
import { secondsMax, secondsOf } from "./seconds.ts";

/** A kind of work that is passed through: its path, its fields, the most it may use, and what it used. */
export interface WorkKind {
  /** Path below `/v1` here, and below the upstream's base URL. */
  path: `/${string}`;
  summary: string;
  capability: PostedCapability;
  /** Whether the body is, or may be, `multipart/form-data`. */
  form: "never" | "allowed" | "required";
  /** All known fields; others are refused unless the operator listed them for the backend. */
  body: z.ZodObject;
  files?: readonly string[];
  response: z.ZodType;
  /** Media type of the answer if it is not JSON. */
  responseType?: string;
  /** Schema of an event, if the answer can be an event stream. */
  events?: z.ZodType;
  /** The answer is relayed piece by piece, whatever its type. */
  isStreamed?: true;
  /** Checks the fields that matter; throws if one is wrong. */
  read(payload: Payload): AskedWork | Promise<AskedWork>;
  /** What a whole answer says was made. Throws if it is an error. */
  made(answer: AnswerBody): Made;
  /** The same of an event with a `usage`. */
  madeIn?(event: { usage: unknown }): Made;
}

/** Fields that pass unchanged and do not affect the price, separated by spaces. */
const known = (names: string): Record<string, z.ZodOptional<z.ZodUnknown>> =>
  Object.fromEntries(names.split(" ").map((name) => [name, z.unknown().optional()]));

const PROVIDER = z.string().optional().describe("Only this backend, or backends of this kind");
const EVENT = z.looseObject({ type: z.string() });

/** Tokens of the largest image in the best quality. */
const OUTPUT_TOKENS_PER_IMAGE = 6_240;
/** A preview of an unfinished image. */
const PARTIAL_IMAGE_TOKENS = 100;
/** An input image in full detail. */
const INPUT_IMAGE_TOKENS = 6_240;
/** Fields with input images: files, or texts with a URL. */
const PICTURES = ["image", "image[]", "mask"];

function lower(payload: Payload, name: "size" | "quality"): string | null {
  const value = payload.sent(name) ?? null;
  if (value !== null && typeof value !== "string") return failField(name, "must be a text");
  return value === null ? null : value.trim().toLowerCase();
}

function readImages(payload: Payload): AskedWork {
  const prompt = payload.sent("prompt");
  if (typeof prompt !== "string" || prompt === "")
    return failField("prompt", "is required: a text that describes the image");
  const image = spendNumber(payload.sent("n"), "n") ?? 1;
  const isForm = payload instanceof FormPayload;
  const pictures = isForm
    ? payload.sentNames().filter((name) => PICTURES.includes(name))
    : PICTURES.flatMap((name) => payload.sent(name) ?? []);
  const previews = payload.sent("partial_images");
  const previewsMax = Number(previews ?? 0) === 0 ? 0 : (spendNumber(previews, "partial_images") ?? 0);
  return {
    units: ["image", "call"],
    counts: { image, call: image },
    look: { size: lower(payload, "size"), quality: lower(payload, "quality") },
    isForm,
    promptTokens: (isForm ? estimateTokens(prompt) : 0) + pictures.length * INPUT_IMAGE_TOKENS,
    outputTokens: image * (OUTPUT_TOKENS_PER_IMAGE + previewsMax * PARTIAL_IMAGE_TOKENS),
    counted: { outputTokens: image * IMAGE_TOKENS },
  };
}

/** Every entry counts as an image, whatever its fields are called. */
function madeImages(answer: AnswerBody): Made {
  requireList(answer, { list: "data" });
  const { data, size, quality } = answer.parsed as { data: unknown[]; size?: unknown; quality?: unknown };
  const image = data.length;
  return {
    counts: { image, call: image },
    look: {
      ...(typeof size === "string" && { size: size.toLowerCase() }),
      ...(typeof quality === "string" && { quality: quality.toLowerCase() }),
    },
  };
}

const ImageFields = z.object({
  model: z.string(),
  prompt: z.string(),
  n: z.int().nullish(),
  size: z.string().nullish().describe("Such as 1024x1024"),
  quality: z.string().nullish(),
  ...known(
    "background moderation negative_prompt output_compression output_format partial_images " +
      "response_format seed stream style user",
  ),
  provider: PROVIDER,
});

const sharedByImages = {
  capability: "images",
  response: z.looseObject({
    created: z.int(),
    data: z.array(z.looseObject({ url: z.string().optional(), b64_json: z.string().optional() })),
  }),
  events: EVENT,
  read: readImages,
  made: madeImages,
} as const;

const generations: WorkKind = {
  ...sharedByImages,
  path: "/images/generations",
  summary: "Images from a description, as a whole or as an event stream",
  form: "never",
  body: ImageFields,
};

const edits: WorkKind = {
  ...sharedByImages,
  path: "/images/edits",
  summary: "Images made from other images and a description",
  form: "allowed",
  files: PICTURES,
  body: ImageFields.extend({
    image: z.unknown().optional().describe("A file, or several as `image[]`"),
    ...known("image[] mask input_fidelity"),
  }),
};

/** Slow speech is ten characters a second, and a second is about twenty tokens. */
const SPEECH_TOKENS_PER_CHARACTER = 2;
/** An audio token is 100 ms; nobody speaks more than ten text tokens a second. */
const INPUT_TOKENS_PER_SECOND = 10;
const OUTPUT_TOKENS_PER_SECOND = 10;
/** A day; no sound that fits into a request is longer. */
const SECONDS_MAX = 24 * 3_600;
const speech: WorkKind = {
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
function reportedSeconds({ usage, duration }: Record<string, unknown>): unknown {
  const reported = isObject(usage) && usage.seconds !== undefined ? usage.seconds : duration;
  return typeof reported === "string" && reported.trim() !== "" ? Number(reported) : (reported ?? null);
}

const shown = (figure: unknown): string | undefined => JSON.stringify(figure)?.slice(0, 32);

function madeOfSound(answer: Record<string, unknown>): Made {
  const second = reportedSeconds(answer);
  if (second === null) return {};
  if (typeof second === "number" && second >= 0 && second <= SECONDS_MAX) return { counts: { second } };
  return { problem: `a sound of ${shown(second)} seconds; that was not charged` };
}

const transcriptions: WorkKind = {
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
  events: EVENT,
  read: readSound,
  made({ parsed }) {
    requireText(parsed);
    return isObject(parsed) ? madeOfSound(parsed) : {};
  },
  madeIn: madeOfSound,
};

/** Rerankers bill a call as one search of up to this many documents; a long document counts as several. */
const DOCUMENTS_PER_CALL = 100;
const DOCUMENT_CHARS = 2_000;
/** No body that is taken holds so many documents. */
const SEARCHES_MAX = 10_000;
const textOf = (value: unknown): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");

const rerank: WorkKind = {
  path: "/rerank",
  summary: "Documents in the order of how well they answer a query",
  capability: "rerank",
  form: "never",
  body: z.object({
    model: z.string(),
    query: z.union([z.string(), z.looseObject({})]).describe("A text, or what the model takes for one"),
    documents: z.array(z.unknown()).describe("Texts, or objects with a `text`"),
    top_n: z.int().nullish(),
    ...known("return_documents rank_fields max_chunks_per_doc max_tokens_per_doc truncation user"),
    provider: PROVIDER,
  }),
  response: z.looseObject({
    results: z.array(z.looseObject({ index: z.int(), relevance_score: z.number() })),
  }),
  read(payload): AskedWork {
    const query = payload.sent("query");
    const documents = payload.sent("documents");
    if (!isObject(query) && (typeof query !== "string" || query === ""))
      failField("query", "is required: a text");
    if (!Array.isArray(documents) || documents.length === 0)
      return failField("documents", "is required: an array of texts with at least one entry");
    const pieces = documents.reduce<number>(
      (sum, each) => sum + Math.max(1, Math.ceil(textOf(each).length / DOCUMENT_CHARS)),
      0,
    );
    return {
      units: ["call"],
      counts: { call: Math.ceil(pieces / DOCUMENTS_PER_CALL) },
      // The query is read again with each document.
      promptTokens: estimateTokens(textOf(query)) * pieces,
      outputTokens: 0,
    };
  },
  made(answer) {
    requireList(answer, { list: "results" });
    const { meta } = answer.parsed as { meta?: unknown };
    const units = isObject(meta) && isObject(meta.billed_units) ? meta.billed_units.search_units : null;
    if (units == null) return {};
    if (isPlausible(units) && units <= SEARCHES_MAX) return { counts: { call: units } };
    return { problem: `${shown(units)} searches; they were not charged` };
  },
};

const moderations: WorkKind = {
  path: "/moderations",
  summary: "Whether texts or images are of a kind that a policy forbids",
  capability: "moderation",
  form: "never",
  body: z.object({
    model: z.string(),
    input: z.union([z.string(), z.array(z.unknown())]),
    provider: PROVIDER,
  }),
  response: z.looseObject({ id: z.string(), results: z.array(z.looseObject({ flagged: z.boolean() })) }),
  read(payload): AskedWork {
    const input = payload.sent("input");
    const isList = Array.isArray(input) && input.length > 0;
    if (!isList && (typeof input !== "string" || input === ""))
      failField("input", "is required: a text, or an array of texts or of parts with a `type`");
    return {
      units: ["call"],
      counts: { call: isList ? input.length : 1 },
      promptTokens: 0,
      outputTokens: 0,
    };
  },
  made(answer) {
    requireList(answer, { list: "results" });
    return {};
  },
};

export const works: Readonly<Record<string, WorkKind>> = {
  imageGenerations: generations,
  imageEdits: edits,
  speech,
  transcriptions,
  rerank,
  moderations,
};
