import type { ReservedChange } from "../../bus/contract.ts";
import type { Needs } from "../foundation.ts";

export const TOKEN_WINDOW_MS = 60_000;
/** Tokens that come within this time leave the window together, so a busy key costs one entry of them. */
const STEP_MS = 1_000;

interface Step {
  /** When it ends; what it has leaves the window so much later. */
  endMs: number;
  tokens: Map<string, number>;
}

/** Tokens used within the last minute, by key. They stay reserved until then, so that every instance sees them. */
export class RecentTokens {
  /** Oldest first; at most one a second of the window. */
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

  /** Seconds until some of the tokens under this name leave the window; null when none of this process's do. */
  secondsUntilFewer(name: string): number | null {
    const step = this.#steps.find(({ tokens }) => tokens.has(name));
    if (!step) return null;
    return Math.max(1, Math.ceil((step.endMs + TOKEN_WINDOW_MS - this.options.clock.elapsed()) / 1000));
  }

  #schedule(): void {
    const oldest = this.#steps[0];
    if (this.#cancel || !oldest) return;
    const waitMs = oldest.endMs + TOKEN_WINDOW_MS - this.options.clock.elapsed();
    this.#cancel = this.options.clock.after(Math.max(waitMs, 0), () => {
      this.#cancel = null;
      this.#leave();
      this.#schedule();
    });
  }

  #leave(): void {
    const { clock, counter } = this.options;
    const nowMs = clock.elapsed();
    while (this.#steps[0] && this.#steps[0].endMs + TOKEN_WINDOW_MS <= nowMs) {
      const { tokens } = this.#steps.shift()!;
      const changes = Array.from(
        tokens,
        ([name, count]): ReservedChange => ({ name, amount: { money: 0, tokens: -count } }),
      );
      counter.change(changes);
    }
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}
