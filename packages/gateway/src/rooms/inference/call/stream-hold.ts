import type { Admission } from "../../metering/index.ts";

/** More is held when this share of what is held has been delivered. */
const ASK_AT_SHARE = 3 / 4;
const STEP_TOKENS_MIN = 64;
const STEP_TOKENS_USUAL = 1_024;
/** Counting without a tokenizer can overestimate by a third; an upstream with a limit is stopped only beyond that. */
const COUNT_ERROR = 4 / 3;

/** The hold of a stream, which grows with what is delivered. */
export class StreamHold {
  /** Tokens that may be delivered before `delivered` must be called. */
  askAt: number;
  #held: number;

  constructor(
    readonly admission: Admission,
    readonly promptTokens: () => number,
    /** The upstream was sent a limit that matches the hold. */
    readonly isTold: boolean,
  ) {
    this.#held = admission.outputTokensHeld;
    this.askAt = Math.ceil(this.#held * ASK_AT_SHARE);
  }

  /** Whether the stream may go on after this many tokens: the hold grows by the usual step, or by what fits of it. */
  async delivered(tokens: number): Promise<boolean> {
    const { admission, promptTokens, isTold } = this;
    const step = Math.max(STEP_TOKENS_USUAL, this.#held / 2);
    for (let more = step; more >= STEP_TOKENS_MIN; more /= 2) {
      const total = Math.ceil(Math.max(this.#held, tokens) + more);
      if (!(await admission.grow({ promptTokens: promptTokens(), completionTokens: total }))) continue;
      this.#held = total;
      this.askAt = Math.ceil(total * ASK_AT_SHARE);
      return true;
    }
    // Nothing more can be held: the stream may use up the current hold.
    this.askAt = Math.ceil(this.#held * (isTold ? COUNT_ERROR : 1)) + 1;
    return tokens < this.askAt;
  }
}
