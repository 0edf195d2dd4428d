import { z } from "zod";
import type { Bus } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fail, toServiceError } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";

const COMMANDS = "agents-commands";
const ANSWERS = "agents-answers";
/** Longer than a node has for its own answer, so that its refusal is what the caller sees. */
const ANSWER_TIMEOUT_MS = 15_000;
const WAITING_MAX = 1_000;

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

const Order = z.object({ id: z.string(), from: z.string(), to: z.string(), command: Command });
const Answer = z.object({ id: z.string(), to: z.string(), error: z.string().nullable() });

export interface RelayOptions {
  bus: Bus;
  clock: Clock;
  ids: Ids;
  instance: string;
  execute(command: Command): Promise<void>;
}

/** Takes commands to the instance that holds the node's connection. */
export class Relay {
  readonly #waiting = new Map<string, (error: string | null) => void>();
  readonly #unsubscribe: (() => void)[];

  constructor(readonly options: RelayOptions) {
    const { bus } = options;
    this.#unsubscribe = [
      bus.subscribe(COMMANDS, (text) => void this.#perform(text)),
      bus.subscribe(ANSWERS, (text) => {
        const { id, to, error } = Answer.parse(JSON.parse(text));
        if (to === options.instance) this.#waiting.get(id)?.(error);
      }),
    ];
  }

  /** Has another instance carry the command out; throws what went wrong there. */
  async send(to: string, command: Command): Promise<void> {
    const { bus, clock, ids, instance } = this.options;
    if (this.#waiting.size >= WAITING_MAX)
      fail("app_error", "Too many orders to nodes are under way; try again");
    const id = ids.uuid();
    const { promise, resolve } = Promise.withResolvers<string | null>();
    this.#waiting.set(id, resolve);
    const cancel = clock.after(ANSWER_TIMEOUT_MS, () =>
      resolve("The instance that holds the node's connection does not answer; try again"),
    );
    bus.publish(
      COMMANDS,
      JSON.stringify({ id, from: instance, to, command } satisfies z.input<typeof Order>),
    );
    const error = await promise;
    cancel();
    this.#waiting.delete(id);
    if (error !== null) fail("app_error", error);
  }

  close(): void {
    for (const end of this.#unsubscribe) end();
  }

  async #perform(text: string): Promise<void> {
    const { id, from, to, command } = Order.parse(JSON.parse(text));
    if (to !== this.options.instance) return;
    let error: string | null = null;
    try {
      await this.options.execute(command);
    } catch (thrown) {
      error = toServiceError(thrown).message;
    }
    this.options.bus.publish(
      ANSWERS,
      JSON.stringify({ id, to: from, error } satisfies z.input<typeof Answer>),
    );
  }
}
