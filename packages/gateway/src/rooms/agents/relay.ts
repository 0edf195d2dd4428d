import { z } from "zod";
import type { Requests } from "../../bus/contract.ts";
import { fail, toServiceError } from "../../kernel/errors.ts";

/** Longer than a node has for its own answer, so that its refusal is what the caller sees. */
const ANSWER_TIMEOUT_MS = 15_000;
/** What an instance answers when the command was carried out; otherwise it says what went wrong. */
const DONE = "";

const topicOf = (instance: string) => `agents-commands:${instance}`;

export const Command = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("deploy"),
    agentId: z.string(),
    modelId: z.string(),
    streamId: z.string(),
    userId: z.string(),
  }),
  z.object({ kind: z.literal("stop"), agentId: z.string(), modelId: z.string() }),
]);
export type Command = z.infer<typeof Command>;

export interface RelayOptions {
  /** Null: there are no other instances. */
  requests: Requests | null;
  instance: string;
  execute(command: Command): Promise<void>;
}

/** Takes commands to the instance that holds the node's connection. */
export class Relay {
  readonly #unsubscribe: (() => void) | undefined;

  constructor(readonly options: RelayOptions) {
    const { requests, instance } = options;
    this.#unsubscribe = requests?.serve(topicOf(instance), (text) => this.#perform(text));
  }

  /** Has another instance carry the command out; throws what went wrong there. */
  async send(to: string, command: Command): Promise<void> {
    const { requests } = this.options;
    const answer = await requests?.ask(topicOf(to), JSON.stringify(command), ANSWER_TIMEOUT_MS);
    if (answer === DONE) return;
    fail("app_error", answer ?? "The instance that holds the node's connection does not answer; try again");
  }

  close(): void {
    this.#unsubscribe?.();
  }

  async #perform(text: string): Promise<string> {
    try {
      await this.options.execute(Command.parse(JSON.parse(text)));
      return DONE;
    } catch (thrown) {
      return toServiceError(thrown).message;
    }
  }
}
