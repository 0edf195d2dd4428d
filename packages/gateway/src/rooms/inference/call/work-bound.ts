import type { ImageLook, UnitPrice, WorkUnit } from "../../billing/index.ts";
import { estimatePromptTokens, samplePromptTokens, type TokenBound } from "../../metering/index.ts";
import { bytesOf, type SentBody } from "./bound.ts";

type WorkCounts = Readonly<Partial<Record<WorkUnit, number>>>;

/** The most that a request may use, from its body as it is sent. */
export interface AskedWork {
  /** What it may be priced by. */
  units: readonly WorkUnit[];
  /** At most so many of each unit. */
  counts: WorkCounts;
  /** Of images. */
  look?: ImageLook;
  /** The body is a form: `promptTokens` are all that it has. */
  isForm: boolean;
  /** Besides those of a body that is JSON. */
  promptTokens: number;
  /** At most. */
  outputTokens: number;
  /** What counts as output where the upstream reports no usage; absent: `outputTokens`. */
  outputTokensCounted?: number;
  /** A report of more seconds than this flags the backend. */
  secondsBelieved?: number;
}

/** What an answer says was made. What it does not say is as it was asked for. */
export interface Made {
  counts?: WorkCounts;
  look?: Partial<ImageLook>;
  /** What cannot be true. */
  problem?: string;
}

/** The most that a piece of work can cost: by its own price, or by the tokens of a model without one. */
export class WorkBound implements TokenBound {
  /** In US dollars; null where tokens count. */
  readonly mostUsd: number | null;
  readonly outputTokensMax: number;
  /** It cannot be made smaller. */
  readonly outputTokensMin: number;
  readonly #asked: AskedWork;
  readonly #price: UnitPrice | null;
  readonly #body: SentBody;

  constructor({ asked, price, body }: { asked: AskedWork; price: UnitPrice | null; body: SentBody }) {
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
