import type { Admission } from "../../metering/index.ts";

/** The hold grows once this share of it has been delivered. */
const ASK_AT_SHARE = 3 / 4;
const STEP_TOKENS_MIN = 64;
const STEP_TOKENS_USUAL = 1_024;
/** Our count may be a third too high, so an upstream that was sent a limit is stopped only beyond that. */
const COUNT_ERROR = 4 / 3;

/** The hold of a stream; it grows as the stream is delivered. */
export class StreamHold {
  /** Tokens that may be delivered before `delivered` must be called. */
  askAt: number;
  #held: number;

  constructor(
    readonly admission: Admission,
    readonly promptTokens: () => number,
    /** The upstream was sent a limit that matches the hold. */
    readonly isLimitSent: boolean,
  ) {
    this.#held = admission.outputTokensHeld;
    this.askAt = Math.ceil(this.#held * ASK_AT_SHARE);
  }

  /** Whether the stream may continue after this many tokens. Tries to grow the hold, with smaller and smaller steps. */
  async delivered(tokens: number): Promise<boolean> {
    const { admission, promptTokens, isLimitSent } = this;
    const step = Math.max(STEP_TOKENS_USUAL, this.#held / 2);
    for (let more = step; more >= STEP_TOKENS_MIN; more /= 2) {
      const total = Math.ceil(Math.max(this.#held, tokens) + more);
      if (!(await admission.grow({ promptTokens: promptTokens(), completionTokens: total }))) continue;
      this.#held = total;
      this.askAt = Math.ceil(total * ASK_AT_SHARE);
      return true;
    }
    // Nothing more can be held: the stream may use up the current hold.
    this.askAt = Math.ceil(this.#held * (isLimitSent ? COUNT_ERROR : 1)) + 1;
    return tokens < this.askAt;
  }
}
