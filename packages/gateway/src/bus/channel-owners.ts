import { BoundedMap } from "../kernel/bounded.ts";
import type { Clock } from "../kernel/clock.ts";
import type { SignedIn } from "../kernel/context.ts";
import { nextTurn } from "../kernel/turns.ts";
import type { Bus } from "./contract.ts";

const OWNERS_MAX = 100_000;
/** How long an instance that has just started, or has missed messages, waits for the facts of the others. */
const LEARNING_MS = 1_000;
const WAITING_MAX = 10_000;
const FACTS_PER_MESSAGE = 500;

const ASKED = "channel-owners-asked";
const FACTS = "channel-owners-told";

interface ChannelFacts {
  opener?: SignedIn;
  /** The user who pushed first into a channel that nobody opened. */
  claimedBy?: string;
  isClosed?: true;
}

/** Tracks who owns each notification channel, across instances. */
export class ChannelOwners {
  readonly #known = new BoundedMap<string, ChannelFacts>(OWNERS_MAX);
  #waiting: (() => void)[] = [];
  #endLearning: (() => void) | null = null;

  constructor(readonly options: { bus: Bus; clock: Clock; instance: string }) {
    const { bus, instance } = options;
    if (!bus.shared) return;
    bus.subscribe(FACTS, (message) => {
      for (const [sessionId, facts] of JSON.parse(message) as [string, ChannelFacts][])
        this.#learn(sessionId, facts);
    });
    bus.subscribe(ASKED, (from) => {
      if (from !== instance) void this.#publishAll();
    });
    bus.onGap(() => this.#ask());
    this.#ask();
  }

  opened(sessionId: string, opener: SignedIn): void {
    this.#learn(sessionId, { opener });
  }

  /** A claim keeps nobody from reading: users could claim a channel that is named after another user's key. */
  claim(sessionId: string, userId: string): void {
    this.#add(sessionId, { claimedBy: userId });
  }

  close(sessionId: string): void {
    this.#add(sessionId, { isClosed: true });
  }

  forget(sessionId: string): void {
    const { opener: _, ...rest } = this.#known.get(sessionId) ?? {};
    if (rest.claimedBy || rest.isClosed) this.#known.set(sessionId, rest);
    else this.#known.delete(sessionId);
  }

  openerOf(sessionId: string): SignedIn | null {
    const { opener, claimedBy } = this.#known.get(sessionId) ?? {};
    return opener ?? (claimedBy === undefined ? null : { userId: claimedBy });
  }

  isOpened(sessionId: string): boolean {
    return this.#known.get(sessionId)?.opener !== undefined;
  }

  mayRead(sessionId: string, userId: string | null): boolean {
    const { opener, isClosed } = this.#known.get(sessionId) ?? {};
    if (userId === null) return !isClosed;
    return opener === undefined || opener.userId === userId;
  }

  /** False while other instances may know an owner of the channel that this one does not. */
  isSure(sessionId: string): boolean {
    return this.#endLearning === null || this.openerOf(sessionId) !== null;
  }

  /** Calls `run` once the other instances have answered, or never if too many are waiting. */
  whenSure(run: () => void): void {
    if (this.#waiting.length < WAITING_MAX) this.#waiting.push(run);
  }

  end(): void {
    this.#waiting = [];
    this.#endLearning?.();
  }

  #ask(): void {
    const { bus, clock, instance } = this.options;
    this.#endLearning?.();
    // Answers can arrive only once the subscription is active.
    bus.ready().then(
      () => bus.publish(ASKED, instance),
      () => {},
    );
    this.#endLearning = clock.after(LEARNING_MS, () => {
      this.#endLearning = null;
      for (const run of this.#waiting.splice(0)) run();
    });
  }

  #learn(sessionId: string, facts: ChannelFacts): void {
    const known = this.#known.get(sessionId);
    const claim = known?.claimedBy && { claimedBy: known.claimedBy };
    this.#known.set(sessionId, { ...known, ...facts, ...claim });
  }

  #add(sessionId: string, facts: ChannelFacts): void {
    this.#learn(sessionId, facts);
    this.#publish([[sessionId, facts]]);
  }

  #publish(facts: readonly [string, ChannelFacts][]): void {
    if (this.options.bus.shared) this.options.bus.publish(FACTS, JSON.stringify(facts));
  }

  /** In parts, so that nothing else waits long. */
  async #publishAll(): Promise<void> {
    const all = [...this.#known];
    for (let at = 0; at < all.length; at += FACTS_PER_MESSAGE) {
      this.#publish(all.slice(at, at + FACTS_PER_MESSAGE));
      await nextTurn();
    }
  }
}
