import { fail } from "../../kernel/errors.ts";

const IMAGES_MAX = 4;
const IMAGE_BYTES_MAX = 10 * 1024 * 1024;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** First bytes of the accepted formats. */
const SIGNATURES: Readonly<Record<string, (bytes: Uint8Array) => boolean>> = {
  "image/png": (bytes) => bytes[0] === 0x89 && bytes[1] === 0x50 && bytes[2] === 0x4e && bytes[3] === 0x47,
  "image/jpeg": (bytes) => bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff,
  "image/webp": (bytes) =>
    Buffer.from(bytes.subarray(0, 4)).toString("latin1") === "RIFF" &&
    Buffer.from(bytes.subarray(8, 12)).toString("latin1") === "WEBP",
};

/** Refuses images that no upstream would accept, naming the field and the reason, before anything is stored. */
export function checkImages(images: readonly { data_base64: string; mime_type: string }[]): void {
  const refuse = (field: string, why: string): never =>
    fail("invalid_params", `Invalid params: \`${field}\`: ${why}`, { data: { fields: [field] } });
  if (images.length > IMAGES_MAX) refuse("images", `at most ${IMAGES_MAX} images`);
  images.forEach(({ data_base64, mime_type }, i) => {
    const signature = Object.hasOwn(SIGNATURES, mime_type) ? SIGNATURES[mime_type] : undefined;
    if (!signature) refuse(`images.${i}.mime_type`, `must be one of ${Object.keys(SIGNATURES).join(", ")}`);
    if (data_base64.length > (IMAGE_BYTES_MAX * 4) / 3 + 4)
      refuse(`images.${i}.data_base64`, "the image is larger than 10 MiB");
    if (data_base64.length % 4 !== 0 || !BASE64.test(data_base64)) {
      refuse(`images.${i}.data_base64`, "must be base64, without a data: prefix");
    }
    const head = Buffer.from(data_base64.slice(0, 24), "base64");
    if (!signature!(head)) refuse(`images.${i}.data_base64`, `does not look like ${mime_type}`);
  });
}
