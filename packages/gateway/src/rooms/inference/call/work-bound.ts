import type { ImageLook, UnitPrice, WorkUnit } from "../../billing/index.ts";
import { estimatePromptTokens, type TokenBound } from "../../metering/index.ts";
import { bytesOf, type SentBody } from "./bound.ts";

type WorkCounts = Readonly<Partial<Record<WorkUnit, number>>>;

interface WorkSize {
  counts: WorkCounts;
  /** In addition to the tokens of a JSON body. */
  promptTokens: number;
  outputTokens: number;
}

/** What a request asks for, from its body as it is sent. */
export interface AskedWork extends WorkSize {
  units: readonly WorkUnit[];
  look?: ImageLook;
  /** The body is a form: `promptTokens` is the complete count. */
  isForm: boolean;
  /** Unless its type is JSON, the answer is a transcript: nothing in it is a report, whatever it looks like. */
  isWords?: boolean;
  /** Charged if the upstream reports nothing; anything not given here is charged as held. */
  counted?: Partial<WorkSize>;
}

/** What an answer says was made. Anything it does not mention counts as asked for. */
export interface Made {
  counts?: WorkCounts;
  look?: Partial<ImageLook>;
  problem?: string;
}

/** The most that a piece of work can cost: by its unit price, or by tokens for a model without one. */
export class WorkBound implements TokenBound {
  readonly mostUsd: number | null;
  readonly outputTokensMax: number;
  /** Equal to the maximum: such work cannot be shortened. */
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
  /** Charged if the upstream reports nothing. */
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

  /** Priced by what the upstream says was made, even if that exceeds the hold. */
  costOf({ counts, look }: Made): number {
    const price = this.#price!;
    const asked = this.#asked;
    const count = { ...asked.counts, ...asked.counted?.counts, ...counts }[price.unit] ?? 1;
    return price.usd(asked.look && { ...asked.look, ...look }) * count;
  }
}
