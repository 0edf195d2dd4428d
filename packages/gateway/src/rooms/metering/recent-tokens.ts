import type { Needs } from "../foundation.ts";

export const TOKEN_WINDOW_MS = 60_000;
/** Tokens of one step leave the window together, so that a busy key has one entry per step. */
const STEP_MS = 1_000;

interface Step {
  /** When it ends; its tokens leave the window `TOKEN_WINDOW_MS` later. */
  endMs: number;
  tokens: Map<string, number>;
}

/** Tokens of the last minute, by key. They stay reserved for that long, so that every instance sees them. */
export class RecentTokens {
  /** Oldest first. */
  #steps: Step[] = [];
  #cancel: (() => void) | null = null;

  constructor(readonly options: Needs<"clock" | "counter">) {}

  add(name: string, tokens: number): void {
    if (tokens <= 0) return;
    const { clock, counter } = this.options;
    const nowMs = clock.elapsed();
    let step = this.#steps.at(-1);
    if (!step || nowMs > step.endMs) {
      step = { endMs: nowMs + STEP_MS, tokens: new Map() };
      this.#steps.push(step);
    }
    step.tokens.set(name, (step.tokens.get(name) ?? 0) + tokens);
    counter.change([{ name, amount: { money: 0, tokens } }]);
    this.#schedule();
  }

  /** Seconds until some tokens under this name leave the window; null if this process has none. */
  secondsUntilFewer(name: string): number | null {
    const step = this.#steps.find(({ tokens }) => tokens.has(name));
    if (!step) return null;
    return Math.max(1, Math.ceil((step.endMs + TOKEN_WINDOW_MS - this.options.clock.elapsed()) / 1000));
  }

  #schedule(): void {
    const oldest = this.#steps[0];
    if (this.#cancel || !oldest) return;
    const waitMs = oldest.endMs + TOKEN_WINDOW_MS - this.options.clock.elapsed();
    this.#cancel = this.options.clock.after(Math.max(waitMs, 0), () => this.#leave());
  }

  #leave(): void {
    this.#cancel = null;
    const { clock, counter } = this.options;
    const nowMs = clock.elapsed();
    while (this.#steps[0] && this.#steps[0].endMs + TOKEN_WINDOW_MS <= nowMs) {
      const { tokens } = this.#steps.shift()!;
      counter.change(Array.from(tokens, ([name, count]) => ({ name, amount: { money: 0, tokens: -count } })));
    }
    this.#schedule();
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}
