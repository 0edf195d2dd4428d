import { ServingOptions } from "@model-gateway/protocol/agent.ts";
import { z } from "zod";
import { callInstance, type Requests, type Subscription, serveCalls } from "../../bus/contract.ts";
import { fail } from "../../kernel/errors.ts";

const topicOf = (instance: string) => `agents-commands:${instance}`;
/** Longer than a node has for its own answer, so that its refusal is what the caller sees. */
const ANSWER_TIMEOUT_MS = 15_000;

const Node = z.object({ agentId: z.string() });
const Model = Node.extend({ modelId: z.string() });
const Command = z.discriminatedUnion("kind", [
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

export async function sendCommand(
  requests: Requests | null,
  instance: string,
  command: Command,
): Promise<unknown> {
  const answer = await callInstance(requests, topicOf(instance), command, ANSWER_TIMEOUT_MS);
  if (!answer) fail("app_error", "The instance that holds the node's connection does not answer; try again");
  return answer.result;
}

export const serveCommands = (
  requests: Requests,
  instance: string,
  execute: (command: Command) => Promise<unknown>,
): Subscription => serveCalls(requests, topicOf(instance), (command) => execute(Command.parse(command)));
