import { z } from "zod";

/** The number of items that a recall asks for and accepts. */
export const RECALL_ITEMS_MAX = 8;
export const LISTED_ITEMS_MAX = 200;

export const NodeId = z.string().min(1).max(200);
const Item = z.object({ node_id: NodeId, text: z.string() });
const Recalled = Item.extend({ score: z.number() });
export type RecalledItem = z.output<typeof Recalled>;

/** The memory service's answers; any other form counts as its failure. */
export const ANSWERS = {
  "Memory.Recall": z.object({
    items: z.array(Recalled).transform((items) => items.slice(0, RECALL_ITEMS_MAX)),
  }),
  "Memory.Write": z.object({ ok: z.literal(true), node_ids: z.array(z.string()) }),
  "Memory.List": z.object({
    items: z.array(Item).transform((items) => items.slice(0, LISTED_ITEMS_MAX)),
    total: z.int().min(0),
  }),
  "Memory.Delete": z.object({ deleted: z.boolean() }),
};
