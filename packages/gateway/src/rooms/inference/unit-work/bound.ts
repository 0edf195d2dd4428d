import type { UnitPrice } from "../../billing/index.ts";
import { estimatePromptTokens, samplePromptTokens, type TokenBound } from "../../metering/index.ts";
import { bytesOf, type SentBody } from "../call/bound.ts";
import type { Asked, Made } from "./kind.ts";

/** The most that a piece of work can cost: by its own price, or by the tokens of a model without one. */
export class WorkBound implements TokenBound {
  /** In US dollars; null where tokens count. */
  readonly mostUsd: number | null;
  readonly outputTokensMax: number;
  /** It cannot be made smaller. */
  readonly outputTokensMin: number;
  readonly #asked: Asked;
  readonly #price: UnitPrice | null;
  readonly #body: SentBody;

  constructor({ asked, price, body }: { asked: Asked; price: UnitPrice | null; body: SentBody }) {
    this.#asked = asked;
    this.#price = price;
    this.#body = body;
    this.mostUsd = price && price.usd(asked.look) * (asked.counts[price.unit] ?? 1);
    this.outputTokensMax = this.outputTokensMin = asked.outputTokens;
  }

  get promptTokens(): number {
    const { isForm, promptTokens } = this.#asked;
    return promptTokens + (isForm ? 0 : samplePromptTokens(bytesOf(this.#body), false));
  }
  countPromptTokens(): number {
    const { isForm, promptTokens } = this.#asked;
    return promptTokens + (isForm ? 0 : estimatePromptTokens(bytesOf(this.#body), false));
  }
  countOutputTokens(): number {
    const { outputTokens, outputTokensCounted } = this.#asked;
    return outputTokensCounted ?? outputTokens;
  }

  /** By what was made, and never more than what was asked for, which is what is held. */
  costOf({ counts, look }: Made): number {
    const price = this.#price!;
    const asked = this.#asked;
    const most = asked.counts[price.unit] ?? 1;
    const count = counts?.[price.unit] ?? most;
    const usd = price.usd(asked.look && { ...asked.look, ...look });
    return Math.min(usd * Math.min(count, most), this.mostUsd!);
  }
}
