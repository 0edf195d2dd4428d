import { fail } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { AnswerForm } from "../call/answer-form.ts";
import { type AnswerHead, completeAnswer, type Owed } from "../call/answer-shape.ts";

/** An answer that did not stream, settled: for clients of the chat API as bytes, for others to be read. */
export class WholeAnswer {
  constructor(
    readonly body: AnswerBody,
    readonly head: AnswerHead,
    readonly usage: Owed,
    readonly form: AnswerForm,
  ) {}

  /** A chat completion: the upstream's own bytes where they are complete. */
  bytes(): Buffer {
    return completeAnswer(this.body, this.head, { usage: this.usage, form: this.form });
  }

  object(): Record<string, unknown> {
    const { parsed } = this.body;
    return isObject(parsed)
      ? parsed
      : fail("bad_gateway", "the upstream answered with something that is not a JSON object");
  }
}
