import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { EVENTS_PER_USER_MAX, MemoryEvent } from "./activity.ts";
import { LISTED_ITEMS_MAX, NodeId } from "./protocol.ts";

export const status = defineMethod({
  name: "memory.status",
  summary: "Whether long-term memory is on, and what it did for you lately",
  auth: "jwt",
  result: z.object({
    enabled: z.boolean().describe("A memory service is configured"),
    writeback: z.boolean().describe("Finished turns are remembered"),
    events: z.array(MemoryEvent).max(EVENTS_PER_USER_MAX).describe("Newest first"),
  }),
  handler: ({ actor, rooms }) => rooms.memory.status(actor.userId),
});

export const list = defineMethod({
  name: "memory.list",
  summary: "What is remembered about you, newest first",
  auth: "jwt",
  params: z.object({
    limit: z.int().min(1).max(LISTED_ITEMS_MAX).default(50),
    offset: z.int().min(0).max(1_000_000).default(0),
  }),
  result: z.object({
    items: z.array(z.object({ node_id: z.string().describe("For memory.delete"), text: z.string() })),
    total: z.int(),
  }),
  handler: ({ params, actor, rooms }) => rooms.memory.list(actor.userId, params),
});

export const remove = defineMethod({
  name: "memory.delete",
  summary: "Forget one thing that is remembered about you",
  auth: "jwt",
  params: z.object({
    node_id: NodeId.describe(
      "Id of the remembered fact, as memory.list and the events of memory.status have it",
    ),
  }),
  result: z.object({ deleted: z.boolean().describe("False when there was no such fact of yours") }),
  handler: async ({ params, actor, rooms }) => ({
    deleted: await rooms.memory.delete(actor.userId, params.node_id),
  }),
});
