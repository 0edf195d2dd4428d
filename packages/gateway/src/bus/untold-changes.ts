import { BoundedMap } from "../kernel/bounded.ts";
import { PRINCIPAL_CHANGED, USER_CHANGED } from "../kernel/topics.ts";

/** Others trust what they know of rights until they hear of a change, so these messages must not be lost. */
const KEPT_TOPICS: ReadonlySet<string> = new Set([PRINCIPAL_CHANGED, USER_CHANGED]);

/** Changes of rights made while the others could not be reached; told once they can. Hearing twice is harmless. */
export class UntoldChanges {
  readonly #changes = new BoundedMap<string, readonly [topic: string, message: string]>();

  /** Other topics are not queued. */
  keep(topic: string, message: string): void {
    if (KEPT_TOPICS.has(topic)) this.#changes.set(`${topic} ${message}`, [topic, message]);
  }

  tell(publish: (topic: string, message: string) => void): void {
    if (this.#changes.size === 0) return;
    const changes = [...this.#changes.entries()];
    this.#changes.clear();
    for (const [, [topic, message]] of changes) publish(topic, message);
  }
}
