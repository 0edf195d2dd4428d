import type { Admission } from "../../metering/index.ts";

/** More is held when this share of what is held has been delivered. */
const ASK_AT_SHARE = 3 / 4;
/** The least that a hold grows by; a smaller rest is not worth asking for. */
const STEP_TOKENS_MIN = 64;
const STEP_TOKENS_USUAL = 1_024;
/**
 * Tokens are counted without a tokenizer, which may come to a third more than there are. An upstream that was told its
 * limit is therefore stopped only when the count is beyond that.
 */
const COUNT_ERROR = 4 / 3;

export interface StreamHoldOptions {
  admission: Admission;
  promptTokens: () => number;
  /** The upstream was told to write no more than is held. */
  isTold: boolean;
}

/** The hold of a stream, which grows with what is delivered. */
export class StreamHold {
  /** So many tokens may be delivered before `delivered` must be asked. */
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

  /** Holds more: the usual step, or the largest half of it that there is. */
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
    // There is no more: what is held may still be used up.
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
