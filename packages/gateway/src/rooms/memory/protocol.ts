import { z } from "zod";
import { fail } from "../../kernel/errors.ts";

/** The most items that a recall asks for, and that are taken even if more come. */
export const RECALL_ITEMS_MAX = 8;
export const LISTED_ITEMS_MAX = 200;
const NODE_ID_CHARS_MAX = 200;

const Recalled = z.object({
  items: z
    .array(
      z.object({ node_id: z.string().min(1).max(NODE_ID_CHARS_MAX), text: z.string(), score: z.number() }),
    )
    .transform((items) => items.slice(0, RECALL_ITEMS_MAX)),
});
const Written = z.object({ ok: z.literal(true), node_ids: z.array(z.string()) });
const Listed = z.object({
  items: z
    .array(z.object({ node_id: z.string().min(1).max(NODE_ID_CHARS_MAX), text: z.string() }))
    .transform((items) => items.slice(0, LISTED_ITEMS_MAX)),
  total: z.int().min(0),
});
const Deleted = z.object({ deleted: z.boolean() });

export const NodeId = z.string().min(1).max(NODE_ID_CHARS_MAX);
export type RecalledItem = z.output<typeof Recalled>["items"][number];

/** Reads the memory service's answers; anything of another form counts as a failure of the service. */
const reader =
  <S extends z.ZodType>(method: string, schema: S) =>
  (answer: unknown): z.output<S> => {
    const parsed = schema.safeParse(answer);
    return parsed.success
      ? parsed.data
      : fail("unavailable", `The memory service answered ${method} with an invalid result`);
  };

export const readRecalled = reader("Memory.Recall", Recalled);
export const readWritten = reader("Memory.Write", Written);
export const readListed = reader("Memory.List", Listed);
export const readDeleted = reader("Memory.Delete", Deleted);
