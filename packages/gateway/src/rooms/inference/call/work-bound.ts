import type { ImageLook, UnitPrice, WorkUnit } from "../../billing/index.ts";
import { estimatePromptTokens, type TokenBound } from "../../metering/index.ts";
import { bytesOf, type SentBody } from "./bound.ts";

type WorkCounts = Readonly<Partial<Record<WorkUnit, number>>>;

interface WorkSize {
  counts: WorkCounts;
  /** Besides those of a body that is JSON. */
  promptTokens: number;
  outputTokens: number;
}

/** What a request asks for, from its body as it is sent. */
export interface AskedWork extends WorkSize {
  units: readonly WorkUnit[];
  look?: ImageLook;
  /** The body is a form: `promptTokens` are all that it has. */
  isForm: boolean;
  /** The answer is, unless it says that it is JSON, what somebody said: it reports nothing, whatever it looks like. */
  isWords?: boolean;
  /** What is charged where the upstream does not say; the rest is as it is held. */
  counted?: Partial<WorkSize>;
}

/** What an answer says was made. What it does not say is as it was asked for. */
export interface Made {
  counts?: WorkCounts;
  look?: Partial<ImageLook>;
  problem?: string;
}

/** The most that a piece of work can cost: by its own price, or by the tokens of a model without one. */
export class WorkBound implements TokenBound {
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
    return this.#asked.promptTokens + this.#bodyTokens;
  }
  /** What is charged where the upstream does not say. */
  get countedPromptTokens(): number {
    const { promptTokens, counted } = this.#asked;
    return (counted?.promptTokens ?? promptTokens) + this.#bodyTokens;
  }
  get #bodyTokens(): number {
    return this.#asked.isForm ? 0 : estimatePromptTokens(bytesOf(this.#body), false);
  }
  countOutputTokens(): number {
    const { outputTokens, counted } = this.#asked;
    return counted?.outputTokens ?? outputTokens;
  }

  /** By what was made, as far as the upstream says so, even if that is more than is held. */
  costOf({ counts, look }: Made): number {
    const price = this.#price!;
    const asked = this.#asked;
    const count = { ...asked.counts, ...asked.counted?.counts, ...counts }[price.unit] ?? 1;
    return price.usd(asked.look && { ...asked.look, ...look }) * count;
  }
}
