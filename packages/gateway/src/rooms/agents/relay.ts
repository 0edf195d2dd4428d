import { z } from "zod";
import type { Requests, Subscription } from "../../bus/contract.ts";
import { fail, toServiceError } from "../../kernel/errors.ts";

const topicOf = (instance: string) => `agents-commands:${instance}`;
/** Longer than a node has for its own answer, so that its refusal is what the caller sees. */
const ANSWER_TIMEOUT_MS = 15_000;
/** The answer when the command was carried out; any other is the message of its failure. */
const DONE = "";

const Command = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("deploy"),
    agentId: z.string(),
    modelId: z.string(),
    streamId: z.string(),
    besideBackends: z.boolean(),
    userId: z.string(),
  }),
  z.object({ kind: z.literal("stop"), agentId: z.string(), modelId: z.string() }),
]);
export type Command = z.infer<typeof Command>;

export async function sendCommand(
  requests: Requests | null,
  instance: string,
  command: Command,
): Promise<void> {
  const answer = await requests?.ask(topicOf(instance), JSON.stringify(command), ANSWER_TIMEOUT_MS);
  if (typeof answer !== "string")
    fail("app_error", "The instance that holds the node's connection does not answer; try again");
  if (answer !== DONE) fail("app_error", answer);
}

export const serveCommands = (
  requests: Requests,
  instance: string,
  execute: (command: Command) => Promise<void>,
): Subscription =>
  requests.serve(topicOf(instance), async (text) => {
    try {
      await execute(Command.parse(JSON.parse(text)));
      return DONE;
    } catch (error) {
      return toServiceError(error).message;
    }
  });
