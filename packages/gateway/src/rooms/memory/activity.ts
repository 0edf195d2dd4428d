import { z } from "zod";
import { BoundedMap } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import { Timestamp } from "../../kernel/method.ts";
import type { Needs } from "../foundation.ts";

/** How many events are kept per person, and for how many people. */
export const EVENTS_PER_USER_MAX = 50;
const USERS_MAX = 5_000;
const TOPIC = "memory-activity";
const ASKED = "memory-activity-asked";
const ANSWERED_WITHIN_MS = 300;

export const MemoryEvent = z.object({
  at: Timestamp,
  kind: z.enum(["recall", "writeback", "delete"]),
  outcome: z.enum(["ok", "failed"]),
  count: z.int().describe("Facts found, written or deleted"),
  node_ids: z.array(z.string()).describe("Their ids, for memory.delete"),
  duration_ms: z.number(),
  detail: z.string().nullable().describe("Why it failed"),
});
export type MemoryEvent = z.output<typeof MemoryEvent> & { id: string };

/** Removes duplicates: several instances may report the same events. */
const latest = (events: readonly MemoryEvent[]): MemoryEvent[] =>
  [...new Map(events.map((event) => [event.id, event])).values()]
    .sort((a, b) => b.at.localeCompare(a.at))
    .slice(0, EVENTS_PER_USER_MAX);

/** The latest memory events of each person, the same on every instance. */
export class Activity {
  readonly #events = new BoundedMap<string, MemoryEvent[]>(USERS_MAX);
  constructor(readonly options: Needs<"bus" | "clock" | "instances"> & { onDelete?(userId: string): void }) {
    options.bus.subscribe(TOPIC, (message) => {
      const { userId, event } = JSON.parse(message) as { userId: string; event: MemoryEvent };
      if (event.kind === "delete") options.onDelete?.(userId);
      // Another instance's event may arrive after a newer one.
      this.#events.set(userId, latest([event, ...(this.#events.get(userId) ?? [])]));
    });
    options.instances?.serve(ASKED, (userId) => JSON.stringify(this.#events.get(userId) ?? []));
  }

  record(userId: string, event: Omit<MemoryEvent, "id" | "at">): void {
    const made = { id: crypto.randomUUID(), at: isoTime(this.options.clock.now()) };
    this.options.bus.publish(TOPIC, JSON.stringify({ userId, event: { ...made, ...event } }));
  }

  /** A freshly started instance knows few events, so all instances are asked. */
  async of(userId: string): Promise<MemoryEvent[]> {
    const told = (await this.options.instances?.askAll(ASKED, userId, ANSWERED_WITHIN_MS)) ?? [];
    return latest([...(this.#events.get(userId) ?? []), ...told.flatMap((events) => JSON.parse(events))]);
  }
}
