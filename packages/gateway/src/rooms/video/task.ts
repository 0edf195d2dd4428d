import { fail } from "../../kernel/errors.ts";
import { unknownIn } from "../../kernel/known-fields.ts";

const IMAGES_MAX = 4;
const IMAGE_BYTES_MAX = 10 * 1024 * 1024;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

const bytesAt = (bytes: Buffer, start: number, end: number) => bytes.toString("latin1", start, end);
/** How the accepted formats begin. */
const SIGNATURES = new Map<string, (bytes: Buffer) => boolean>([
  ["image/png", (bytes) => bytesAt(bytes, 0, 4) === "\x89PNG"],
  ["image/jpeg", (bytes) => bytesAt(bytes, 0, 3) === "\xff\xd8\xff"],
  ["image/webp", (bytes) => bytesAt(bytes, 0, 4) === "RIFF" && bytesAt(bytes, 8, 12) === "WEBP"],
]);

function refuse(field: string, why: string): never {
  fail("invalid_params", `Invalid params: \`${field}\`: ${why}`, { data: { fields: [field] } });
}

/** Refuses images that no upstream would accept, before anything is stored. */
export function checkImages(images: readonly { data_base64: string; mime_type: string }[]): void {
  if (images.length > IMAGES_MAX) refuse("images", `at most ${IMAGES_MAX} images`);
  for (const [i, { data_base64, mime_type }] of images.entries()) {
    const hasSignature = SIGNATURES.get(mime_type);
    if (!hasSignature) refuse(`images.${i}.mime_type`, `must be one of ${[...SIGNATURES.keys()].join(", ")}`);
    if (data_base64.length > (IMAGE_BYTES_MAX * 4) / 3 + 4)
      refuse(`images.${i}.data_base64`, "the image is larger than 10 MiB");
    if (data_base64.length % 4 !== 0 || !BASE64.test(data_base64))
      refuse(`images.${i}.data_base64`, "must be base64, without a data: prefix");
    if (!hasSignature(Buffer.from(data_base64.slice(0, 24), "base64")))
      refuse(`images.${i}.data_base64`, `does not look like ${mime_type}`);
  }
}

/** Vendors' names for the model. They are dropped, because price and rights are those of the request's `model`. */
const MODEL_NAMES = ["model", "model_name", "model_id"];

export const withoutModel = (extra: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(extra).filter(([name]) => !MODEL_NAMES.includes(name)));

/** Refuses names that neither the vendor's dialect nor the operator knows. */
export function requireKnown(extra: Record<string, unknown>, known: readonly string[]): void {
  const unknown = unknownIn(Object.keys(extra), known);
  if (unknown) refuse(`extra.${unknown.name}`, unknown.why);
}
