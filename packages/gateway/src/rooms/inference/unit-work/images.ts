import { z } from "zod";
import { failField } from "../../../kernel/errors.ts";
import { estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import { type AnswerBody, requireList } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import { spendNumber } from "../request/field-rules.ts";
import type { Payload } from "../request/payload.ts";
import { FormPayload } from "./form-payload.ts";
import { known, type WorkKind } from "./kind.ts";

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

/** A count as it is sent; null if absent. Throws if it is not a number. */
const sentCount = (payload: Payload, name: string): number | null => {
  const value = payload.sent(name);
  return value === undefined ? null : spendNumber(value, name);
};

function read(payload: Payload): AskedWork {
  const prompt = payload.sent("prompt");
  if (typeof prompt !== "string" || prompt === "")
    failField("prompt", "is required: a text that describes the image");
  const image = sentCount(payload, "n") ?? 1;
  const isForm = payload instanceof FormPayload;
  const pictures = isForm
    ? payload.sentNames().filter((name) => PICTURES.includes(name))
    : PICTURES.flatMap((name) => payload.sent(name) ?? []);
  const previews =
    Number(payload.sent("partial_images") ?? 0) === 0 ? 0 : sentCount(payload, "partial_images");
  return {
    units: ["image", "call"],
    counts: { image, call: image },
    look: { size: lower(payload, "size"), quality: lower(payload, "quality") },
    isForm,
    promptTokens: (isForm ? estimateTokens(String(prompt)) : 0) + pictures.length * INPUT_IMAGE_TOKENS,
    outputTokens: image * (OUTPUT_TOKENS_PER_IMAGE + (previews ?? 0) * PARTIAL_IMAGE_TOKENS),
    counted: { outputTokens: image * IMAGE_TOKENS },
  };
}

/** Every entry counts as an image, whatever its fields are called. */
function made(answer: AnswerBody): Made {
  requireList(answer, { list: "data", endsProperly: false });
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

const Body = z.object({
  model: z.string(),
  prompt: z.string(),
  n: z.int().nullish(),
  size: z.string().nullish().describe("Such as 1024x1024"),
  quality: z.string().nullish(),
  ...known(
    "background moderation negative_prompt output_compression output_format partial_images " +
      "response_format seed stream style user",
  ),
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
  files: PICTURES,
  body: Body.extend({
    image: z.unknown().optional().describe("A file, or several as `image[]`"),
    ...known("image[] mask input_fidelity"),
  }),
};
