import { BoundedMap } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { Needs } from "../foundation.ts";

/** How many events a person sees, and of how many people they are kept. */
export const EVENTS_PER_USER_MAX = 50;
const USERS_MAX = 5_000;
const TOPIC = "memory-activity";

export interface MemoryEvent {
  at: string;
  kind: "recall" | "writeback" | "delete";
  outcome: "ok" | "failed";
  /** Facts found, written or deleted. */
  count: number;
  node_ids: string[];
  duration_ms: number;
  detail: string | null;
}

/** The latest memory events of each person, on every instance alike. */
export class Activity {
  readonly #events = new BoundedMap<string, MemoryEvent[]>(USERS_MAX);
  constructor(readonly options: Needs<"bus" | "clock"> & { onDelete?(userId: string): void }) {
    options.bus.subscribe(TOPIC, (message) => {
      const { userId, event } = JSON.parse(message) as { userId: string; event: MemoryEvent };
      if (event.kind === "delete") options.onDelete?.(userId);
      // Another instance's event may arrive after a newer one.
      const events = [event, ...(this.#events.get(userId) ?? [])].toSorted((a, b) =>
        b.at.localeCompare(a.at),
      );
      this.#events.set(userId, events.slice(0, EVENTS_PER_USER_MAX));
    });
  }

  record(userId: string, event: Omit<MemoryEvent, "at">): void {
    const at = isoTime(this.options.clock.now());
    this.options.bus.publish(TOPIC, JSON.stringify({ userId, event: { at, ...event } }));
  }

  of(userId: string): MemoryEvent[] {
    return this.#events.get(userId) ?? [];
  }
}
