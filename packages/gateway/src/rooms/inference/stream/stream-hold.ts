import type { Admission } from "../../metering/index.ts";

/** More is held when this share of what is held has been delivered. */
const ASK_AT_SHARE = 3 / 4;
/** The smallest step by which a hold grows. */
const STEP_TOKENS_MIN = 64;
const STEP_TOKENS_USUAL = 1_024;
/**
 * Tokens are counted without a tokenizer, which can overestimate by a third. An upstream that was sent a
 * limit is therefore stopped only when the count is beyond that.
 */
const COUNT_ERROR = 4 / 3;

interface StreamHoldOptions {
  admission: Admission;
  promptTokens: () => number;
  /** The upstream was sent a limit that matches the hold. */
  isTold: boolean;
}

/** The hold of a stream, which grows with what is delivered. */
export class StreamHold {
  /** Tokens that may be delivered before `delivered` must be called. */
  askAt: number;
  #held: number;

  constructor(readonly options: StreamHoldOptions) {
    this.#held = options.admission.outputTokensHeld;
    this.askAt = Math.ceil(this.#held * ASK_AT_SHARE);
  }

  /** Whether the stream may go on after this many tokens. A promise when other instances must be asked. */
  delivered(tokens: number): boolean | Promise<boolean> {
    return this.#grow(tokens, Math.max(STEP_TOKENS_USUAL, this.#held / 2));
  }

  /** Extends the hold: by the usual step, or by halves of it until one fits. */
  #grow(tokens: number, step: number): boolean | Promise<boolean> {
    const { admission, promptTokens } = this.options;
    for (let more = step; more >= STEP_TOKENS_MIN; more /= 2) {
      const total = Math.ceil(Math.max(this.#held, tokens) + more);
      const grown = admission.grow({ promptTokens: promptTokens(), completionTokens: total });
      if (grown instanceof Promise) {
        return grown.then((done) => (done ? this.#grown(total) : this.#grow(tokens, more / 2)));
      }
      if (grown) return this.#grown(total);
    }
    // Nothing more can be held: the stream may use up the current hold.
    const { isTold } = this.options;
    this.askAt = Math.ceil(this.#held * (isTold ? COUNT_ERROR : 1)) + 1;
    return tokens < this.askAt;
  }

  #grown(total: number): true {
    this.#held = total;
    this.askAt = Math.ceil(total * ASK_AT_SHARE);
    return true;
  }
}
