import { z } from "zod";

const USD_PER_MILLION_MAX = 1_000_000;
const USD_EACH_MAX = 10_000;
const IMAGE_PRICES_MAX = 100;

/** Of a million tokens, or a million characters. */
export const UsdPerMillion = z.number().min(0).max(USD_PER_MILLION_MAX);
/** Of one request, image or second. */
export const UsdEach = z.number().min(0).max(USD_EACH_MAX);

const ImageKey = z
  .string()
  .regex(/^[a-z0-9]+(\/[a-z0-9]+)?$/, "keys are a size, a quality, or both: 1024x1024, hd, hd/1024x1024");

export const UsdPerImage = z.union([
  UsdEach,
  z
    .record(ImageKey, UsdEach)
    .refine((prices) => Object.keys(prices).length > 0, "has no price: name a size, such as 1024x1024")
    .refine(
      (prices) => Object.keys(prices).length <= IMAGE_PRICES_MAX,
      `must have at most ${IMAGE_PRICES_MAX} entries`,
    ),
]);
