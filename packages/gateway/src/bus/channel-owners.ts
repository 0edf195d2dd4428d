import { BoundedMap } from "../kernel/bounded.ts";
import type { Clock } from "../kernel/clock.ts";
import type { SignedIn } from "../kernel/context.ts";
import { nextTurn } from "../kernel/turns.ts";
import type { Bus } from "./contract.ts";

const OWNERS_MAX = 100_000;
/** How long an instance that has just started, or has missed messages, waits for what the others know. */
const LEARNING_MS = 1_000;
const WAITING_MAX = 10_000;
const TOLD_AT_ONCE = 500;

const ASKED = "channel-owners-asked";
const TOLD = "channel-owners-told";

interface ChannelFacts {
  opener?: SignedIn;
  /** The user of a channel that nobody opened: who pushed into it first. */
  claimedBy?: string;
  /** It can be read only by someone who is signed in. */
  isClosed?: true;
}

/** Tracks who owns each notification channel, across instances. Until the others have answered, an unknown one is not ours. */
export class ChannelOwners {
  readonly #known = new BoundedMap<string, ChannelFacts>(OWNERS_MAX);
  #waiting: (() => void)[] = [];
  #endLearning: (() => void) | null = null;

  constructor(readonly options: { bus: Bus; clock: Clock; instance: string }) {
    const { bus, instance } = options;
    if (!bus.shared) return;
    bus.subscribe(TOLD, (message) => {
      for (const [sessionId, facts] of JSON.parse(message) as [string, ChannelFacts][])
        this.#learn(sessionId, facts);
    });
    bus.subscribe(ASKED, (from) => {
      if (from !== instance) void this.#tellAll();
    });
    bus.onGap(() => this.#ask());
    this.#ask();
  }

  /** Opened somewhere; the hub tells the others. */
  opened(sessionId: string, opener: SignedIn): void {
    this.#learn(sessionId, { opener });
  }

  /** A claim keeps nobody from reading: it could be laid on a channel that is someone else's by its name, such as a key's. */
  claim(sessionId: string, userId: string): void {
    this.#say(sessionId, { claimedBy: userId });
  }

  close(sessionId: string): void {
    this.#say(sessionId, { isClosed: true });
  }

  /** Its opener; what else is known of it stays. */
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

  /** Whether what is known of the channel can be relied on. */
  isSure(sessionId: string): boolean {
    return this.#endLearning === null || this.openerOf(sessionId) !== null;
  }

  /** Runs it once the other instances have been heard; never, when too many wait. */
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
    // Asked once the answers can be heard.
    bus.ready().then(
      () => bus.publish(ASKED, instance),
      () => {},
    );
    this.#endLearning = clock.after(LEARNING_MS, () => {
      this.#endLearning = null;
      for (const run of this.#waiting.splice(0)) run();
    });
  }

  #learn(sessionId: string, told: ChannelFacts): void {
    const known = this.#known.get(sessionId);
    this.#known.set(sessionId, {
      ...known,
      ...told,
      ...(known?.claimedBy && { claimedBy: known.claimedBy }),
    });
  }

  #say(sessionId: string, facts: ChannelFacts): void {
    this.#learn(sessionId, facts);
    this.#tell([[sessionId, facts]]);
  }

  #tell(told: readonly [string, ChannelFacts][]): void {
    if (this.options.bus.shared) this.options.bus.publish(TOLD, JSON.stringify(told));
  }

  /** In parts, so that nothing else waits for all of it. */
  async #tellAll(): Promise<void> {
    const all = [...this.#known.entries()];
    for (let at = 0; at < all.length; at += TOLD_AT_ONCE) {
      this.#tell(all.slice(at, at + TOLD_AT_ONCE));
      await nextTurn();
    }
  }
}
