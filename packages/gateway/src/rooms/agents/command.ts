import { ServingOptions } from "@model-gateway/protocol/agent.ts";
import { z } from "zod";

const Node = z.object({ agentId: z.string() });
const Model = Node.extend({ modelId: z.string() });
/** A command for a node, sent to the instance that holds its connection. */
export const Command = z.discriminatedUnion("kind", [
  Model.extend({
    kind: z.literal("deploy"),
    streamId: z.string(),
    besideBackends: z.boolean(),
    serving: ServingOptions,
    userId: z.string(),
  }),
  Model.extend({ kind: z.literal("stop"), gently: z.boolean() }),
  Node.extend({ kind: z.literal("drain"), isOn: z.boolean() }),
  /** A question that changes nothing on the node. */
  Node.extend({
    kind: z.literal("ask"),
    method: z.enum(["agent.estimate", "agent.log", "agent.history"]),
    params: z.record(z.string(), z.unknown()),
  }),
]);
export type Command = z.infer<typeof Command>;
export type Question = Extract<Command, { kind: "ask" }>;
