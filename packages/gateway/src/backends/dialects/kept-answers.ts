import type { Clock } from "../../kernel/clock.ts";

const KEPT_CHARS_MAX = 64 * 1024 * 1024;
const ANSWER_CHARS_MAX = 4 * 1024 * 1024;
const KEPT_MS_MAX = 6 * 60 * 60 * 1000;

/** An answer as a chat message, which is how it comes back in the history. */
export interface AnswerForm {
  text: string;
  calls: readonly { id: string }[];
  /** Digest of the messages before it, because many answers have the same text. */
  before: string;
}

interface Kept {
  form: string;
  json: string;
  usedAtMs: number;
}

/** Answers in their own dialect (with signed thinking, encrypted reasoning), for histories that repeat them. Per process. */
export class KeptAnswers {
  readonly #kept = new Map<string, Kept>();
  #chars = 0;

  constructor(readonly clock: Clock) {}

  keep(scope: string | undefined, form: AnswerForm, content: readonly unknown[]): void {
    if (scope === undefined) return;
    const json = JSON.stringify(content);
    if (json.length > ANSWER_CHARS_MAX) return;
    const key = keyOf(scope, form);
    this.#delete(key);
    this.#kept.set(key, { form: formOf(form), json, usedAtMs: this.clock.now() });
    this.#chars += json.length;
    for (const [oldest, { usedAtMs }] of this.#kept) {
      if (this.#chars <= KEPT_CHARS_MAX && usedAtMs > this.clock.now() - KEPT_MS_MAX) break;
      this.#delete(oldest);
    }
  }

  /** The original of a message in the history; null if it is unknown or was changed. */
  find(scope: string | undefined, form: AnswerForm): unknown[] | null {
    if (scope === undefined) return null;
    const key = keyOf(scope, form);
    const kept = this.#kept.get(key);
    if (!kept || kept.form !== formOf(form)) return null;
    this.#kept.delete(key);
    this.#kept.set(key, { ...kept, usedAtMs: this.clock.now() });
    return JSON.parse(kept.json) as unknown[];
  }

  #delete(key: string): void {
    this.#chars -= this.#kept.get(key)?.json.length ?? 0;
    this.#kept.delete(key);
  }
}

/** Without spaces, because clients join the parts of a text in different ways. */
const digest = (text: string): string =>
  new Bun.CryptoHasher("sha256").update(text.replace(/\s+/g, "")).digest("base64");
const keyOf = (scope: string, { text, calls, before }: AnswerForm): string =>
  JSON.stringify([scope, calls[0]?.id ?? [before, digest(text)]]);
const formOf = ({ text, calls }: AnswerForm): string =>
  JSON.stringify([digest(text), calls.map(({ id }) => id)]);
