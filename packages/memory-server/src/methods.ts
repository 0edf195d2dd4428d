import { z } from "zod";
import { factsOf } from "./extract.ts";
import type { FactStore } from "./store.ts";

const LIMIT_DEFAULT = 8;
const LIMIT_MAX = 50;
const LISTED_MAX = 200;
const UserId = z.string().min(1).max(200);

const Recall = z.object({
  user_id: UserId,
  query: z.string().max(16_000),
  limit: z.int().min(1).max(LIMIT_MAX).default(LIMIT_DEFAULT),
});
const Write = z.object({
  user_id: UserId,
  messages: z.array(z.object({ role: z.string(), content: z.string() })).max(100),
  idempotency_key: z.string().min(1).max(200),
});
const List = z.object({
  user_id: UserId,
  limit: z.int().min(1).max(LISTED_MAX).default(LISTED_MAX),
  offset: z.int().min(0).default(0),
});
const Delete = z.object({ user_id: UserId, node_id: z.string().min(1).max(200) });

type Method = (params: unknown) => unknown;

/** The methods of the memory protocol on one store. */
export const memoryMethods = (store: FactStore): ReadonlyMap<string, Method> =>
  new Map<string, Method>([
    [
      "Memory.Recall",
      (params) => {
        const { user_id, query, limit } = Recall.parse(params);
        return { items: store.recall(user_id, query, limit) };
      },
    ],
    [
      "Memory.Write",
      (params) => {
        const { user_id, messages, idempotency_key } = Write.parse(params);
        return { ok: true, node_ids: store.write(user_id, factsOf(messages), idempotency_key) };
      },
    ],
    [
      "Memory.List",
      (params) => {
        const { user_id, limit, offset } = List.parse(params);
        return store.list(user_id, { limit, offset });
      },
    ],
    [
      "Memory.Delete",
      (params) => {
        const { user_id, node_id } = Delete.parse(params);
        return { deleted: store.delete(user_id, node_id) };
      },
    ],
  ]);
