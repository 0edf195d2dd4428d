import { z } from "zod";
import { withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import { ANY, type ImageLook } from "../../billing/index.ts";
import { estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import { type AnswerBody, requireList } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import { IMAGE_COUNTS, IMAGE_SIDES, spendNumber } from "../request/field-rules.ts";
import { refuse } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import { FormPayload } from "./form-payload.ts";
import type { WorkKind } from "./kind.ts";

/** What the largest image of the best quality has, by the models that count images in tokens. */
const OUTPUT_TOKENS_PER_IMAGE = 6_240;
/** A preview of an image that is still being made. */
const PARTIAL_IMAGE_TOKENS = 100;
/** An image to be edited, in full detail. */
const INPUT_IMAGE_TOKENS = 6_240;

function lower(payload: Payload, name: "size" | "quality"): string | null {
  const value = payload.sent(name) ?? null;
  if (value !== null && typeof value !== "string") return refuse(name, "must be a text");
  return value === null ? null : value.trim().toLowerCase();
}

/** A size in sides, or under another name, may be any. */
function lookOf(payload: Payload): ImageLook {
  const isElsewhere = IMAGE_SIDES.some((name) => (payload.sent(name) ?? null) !== null);
  const size = lower(payload, "size");
  return { size: isElsewhere ? ANY : size, quality: lower(payload, "quality") };
}

/** A count as it is sent; null when there is none. Throws the refusal of what is not a number. */
const sentCount = (payload: Payload, name: string): number | null => {
  const value = payload.sent(name);
  return value === undefined ? null : spendNumber(value, name);
};

/** Every name that servers know the number by multiplies it: only one of them is used by a client that means well. */
const countOf = (payload: Payload): number =>
  IMAGE_COUNTS.reduce(
    (count, name) => count * (sentCount(payload, name) ?? 1),
    payload.spendFields().choices,
  );

function read(payload: Payload): AskedWork {
  const prompt = payload.sent("prompt");
  if (typeof prompt !== "string" || prompt === "")
    refuse("prompt", "is required: a text that describes the image");
  const image = countOf(payload);
  const isForm = payload instanceof FormPayload;
  const previews =
    Number(payload.sent("partial_images") ?? 0) === 0 ? 0 : sentCount(payload, "partial_images");
  return {
    units: ["image", "call"],
    counts: { image, call: image },
    look: lookOf(payload),
    isForm,
    promptTokens: isForm ? estimateTokens(String(prompt)) + payload.files.length * INPUT_IMAGE_TOKENS : 0,
    outputTokens: image * (OUTPUT_TOKENS_PER_IMAGE + (previews ?? 0) * PARTIAL_IMAGE_TOKENS),
    outputTokensCounted: image * IMAGE_TOKENS,
  };
}

/** Quotes inside a text are escaped, so that nothing but a key can look like these. */
const IMAGE_KEYS = [/"b64_json"\s*:\s*"/g, /"url"\s*:\s*"/g];
const occurrences = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;

const said = (text: string, name: "size" | "quality"): string | null =>
  new RegExp(`"${name}"\\s*:\\s*"([^"\\\\]{1,32})"`).exec(text)?.[1]?.toLowerCase() ?? null;

function made(answer: AnswerBody): Made {
  requireList(answer, { list: "data", endsProperly: false });
  let text = answer.bytes.toString("latin1");
  // Keys may have escapes in them.
  if (!IMAGE_KEYS.some((pattern) => text.search(pattern) !== -1)) text = withoutEscapedLetters(text);
  const image = Math.max(...IMAGE_KEYS.map((pattern) => occurrences(text, pattern)));
  const size = said(text, "size");
  const quality = said(text, "quality");
  return { counts: { image, call: image }, look: { ...(size && { size }), ...(quality && { quality }) } };
}

const Body = z.looseObject({
  model: z.string(),
  prompt: z.string(),
  n: z.int().nullish(),
  size: z.string().nullish().describe("Such as 1024x1024"),
  quality: z.string().nullish(),
  provider: z.string().optional().describe("Only this backend, or backends of this kind"),
});

const Images = z.looseObject({
  created: z.int(),
  data: z.array(z.looseObject({ url: z.string().optional(), b64_json: z.string().optional() })),
});

const shared = {
  capability: "images",
  response: Images,
  events: z.looseObject({ type: z.string() }),
  read,
  made,
} as const;

export const generations: WorkKind = {
  ...shared,
  path: "/images/generations",
  summary: "Images from a description, as a whole or as an event stream",
  form: "never",
  body: Body,
};

export const edits: WorkKind = {
  ...shared,
  path: "/images/edits",
  summary: "Images made from other images and a description",
  form: "allowed",
  body: Body.extend({ image: z.unknown().describe("A file, or several as `image[]`") }),
};
