import { z } from "zod";

/** Unlike the images, it stays stored with the job. */
const EXTRA_CHARS_MAX = 64 * 1024;

export const VideoTask = z.object({
  model: z.string().min(1).max(128),
  prompt: z.string().min(1).max(8_000),
  negative_prompt: z.string().max(8_000).optional(),
  images: z
    .array(z.object({ data_base64: z.string().min(1), mime_type: z.string() }))
    .optional()
    .describe("First and last frame; PNG, JPEG or WebP, up to 10 MiB each"),
  duration_seconds: z.int().min(1).max(600).optional(),
  width: z.int().min(16).max(16_384).optional(),
  height: z.int().min(16).max(16_384).optional(),
  provider: z.string().max(128).optional().describe("Name or kind of the backend to use"),
  extra: z
    .looseObject({})
    .refine((extra) => JSON.stringify(extra).length <= EXTRA_CHARS_MAX, "must be smaller than 64 KiB")
    .optional()
    .describe(
      "Backend-specific fields such as seed, steps, cfg; a refusal lists those that its vendor's API has",
    ),
});

const VideoFile = z.object({
  url: z.string(),
  mime_type: z.string(),
  width: z.number().optional(),
  height: z.number().optional(),
  duration_seconds: z.number().optional(),
  expires_at: z.string().optional(),
});

export const Job = z.object({
  id: z.uuid(),
  object: z.literal("video.generation"),
  model: z.string(),
  status: z.enum(["queued", "running", "done", "failed", "cancelled"]),
  progress: z.number().describe("0 to 100"),
  result: VideoFile.nullable(),
  error: z.string().nullable(),
  cost: z
    .number()
    .describe(
      "USD; 0 until the job is done. A cancelled one costs nothing if the vendor says that it made no clip",
    ),
  created_at: z.int().describe("Unix seconds"),
  warnings: z.array(z.string()).optional().describe("What was asked for and cannot be sent to this backend"),
});
