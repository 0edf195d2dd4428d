import { BoundedMap } from "../kernel/bounded.ts";
import type { Clock } from "../kernel/clock.ts";
import type { SignedIn } from "../kernel/context.ts";
import type { Bus } from "./contract.ts";

const OWNERS_MAX = 100_000;
/** How long an instance that has just started, or has missed messages, waits for what the others know. */
const LEARNING_MS = 1_000;
const WAITING_MAX = 10_000;
const TOLD_AT_ONCE = 500;

const ASKED = "channel-owners-asked";
const TOLD = "channel-owners-told";

/** What one instance has to say of channels: each channel's id with what is said. */
interface OwnerNews {
  opened?: [string, SignedIn][];
  claimed?: [string, string][];
  closed?: [string, true][];
}

/** Two maps: what is known from everywhere, and the part that was said here first. */
class Book<Fact> {
  readonly known = new BoundedMap<string, Fact>(OWNERS_MAX);
  readonly here = new BoundedMap<string, Fact>(OWNERS_MAX);

  note(sessionId: string, fact: Fact): void {
    this.here.set(sessionId, fact);
    this.known.set(sessionId, fact);
  }

  forget(sessionId: string): void {
    this.here.delete(sessionId);
    this.known.delete(sessionId);
  }

  *parts(): Generator<[string, Fact][]> {
    const all = [...this.here.entries()];
    for (let at = 0; at < all.length; at += TOLD_AT_ONCE) yield all.slice(at, at + TOLD_AT_ONCE);
  }
}

/** Tracks who owns each notification channel, across instances. Until the others have answered, an unknown one is not ours. */
export class ChannelOwners {
  readonly #opened = new Book<SignedIn>();
  /** Users of channels that nobody opened: those who pushed into them first. */
  readonly #claimed = new Book<string>();
  /** Can be read only by someone who is signed in. */
  readonly #closed = new Book<true>();
  #waiting: (() => void)[] = [];
  #endLearning: (() => void) | null = null;

  constructor(readonly options: { bus: Bus; clock: Clock; instance: string }) {
    const { bus, instance } = options;
    if (!bus.shared) return;
    bus.subscribe(TOLD, (message) => this.#learn(JSON.parse(message) as OwnerNews));
    bus.subscribe(ASKED, (from) => {
      if (from !== instance) this.#tellAll();
    });
    bus.onGap(() => this.#ask());
    this.#ask();
  }

  /** Opened here; the hub tells the others. */
  opened(sessionId: string, opener: SignedIn): void {
    this.#opened.note(sessionId, opener);
  }

  remember(sessionId: string, opener: SignedIn): void {
    this.#opened.known.set(sessionId, opener);
  }

  /** A claim keeps nobody from reading: it could be laid on a channel that is someone else's by its name, such as a key's. */
  claim(sessionId: string, userId: string): void {
    this.#claimed.note(sessionId, userId);
    this.#tell({ claimed: [[sessionId, userId]] });
  }

  close(sessionId: string): void {
    this.#closed.note(sessionId, true);
    this.#tell({ closed: [[sessionId, true]] });
  }

  forget(sessionId: string): void {
    this.#opened.forget(sessionId);
  }

  openerOf(sessionId: string): SignedIn | null {
    const opener = this.#opened.known.get(sessionId);
    if (opener) return opener;
    const userId = this.#claimed.known.get(sessionId);
    return userId === undefined ? null : { userId };
  }

  isOpened(sessionId: string): boolean {
    return this.#opened.known.get(sessionId) !== undefined;
  }

  mayRead(sessionId: string, userId: string | null): boolean {
    if (userId === null) return !this.#closed.known.get(sessionId);
    const opener = this.#opened.known.get(sessionId);
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

  #learn({ opened = [], claimed = [], closed = [] }: OwnerNews): void {
    for (const [sessionId, opener] of opened) this.remember(sessionId, opener);
    for (const [sessionId, userId] of claimed)
      if (!this.#claimed.known.get(sessionId)) this.#claimed.known.set(sessionId, userId);
    for (const [sessionId] of closed) this.#closed.known.set(sessionId, true);
  }

  #tell(told: OwnerNews): void {
    if (this.options.bus.shared) this.options.bus.publish(TOLD, JSON.stringify(told));
  }

  /** In parts, so that nothing else waits for all of it. */
  #tellAll(): void {
    const parts = this.#everything();
    const next = () => {
      const part = parts.next();
      if (part.done) return;
      this.#tell(part.value);
      setImmediate(next);
    };
    next();
  }

  *#everything(): Generator<OwnerNews> {
    for (const opened of this.#opened.parts()) yield { opened };
    for (const claimed of this.#claimed.parts()) yield { claimed };
    for (const closed of this.#closed.parts()) yield { closed };
  }
}
