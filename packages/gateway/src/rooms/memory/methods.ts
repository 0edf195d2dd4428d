import { z } from "zod";
import { defineMethod, NoParams, Timestamp } from "../../kernel/method.ts";
import { EVENTS_PER_USER_MAX } from "./activity.ts";
import { NodeId } from "./protocol.ts";

const MemoryEvent = z.object({
  at: Timestamp,
  kind: z.enum(["recall", "writeback", "delete"]),
  outcome: z.enum(["ok", "failed"]),
  count: z.int().describe("Facts found, written or deleted"),
  duration_ms: z.number(),
  detail: z.string().nullable().describe("Why it failed"),
});

export const status = defineMethod({
  name: "memory.status",
  summary: "Whether long-term memory is on, and what it did for you lately",
  auth: "jwt",
  params: NoParams,
  result: z.object({
    enabled: z.boolean().describe("A memory service is configured"),
    writeback: z.boolean().describe("Finished turns are remembered"),
    events: z.array(MemoryEvent).max(EVENTS_PER_USER_MAX).describe("Newest first"),
  }),
  handler: ({ actor, rooms }) => rooms.memory.status(actor.userId),
});

export const remove = defineMethod({
  name: "memory.delete",
  summary: "Forget one thing that is remembered about you",
  auth: "jwt",
  params: z.object({ node_id: NodeId.describe("Id of the remembered fact, as recall gave it") }),
  result: z.object({ deleted: z.boolean().describe("False when there was no such fact of yours") }),
  handler: async ({ params, actor, rooms }) => ({
    deleted: await rooms.memory.delete(actor.userId, params.node_id),
  }),
});
