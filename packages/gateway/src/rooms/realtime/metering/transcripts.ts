import { isObject } from "../../../kernel/json.ts";
import { isPlausible } from "../../../kernel/usage-parts.ts";
import { estimateTokens } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import { type AudioFormats, numberOf } from "./audio.ts";
import { Heard } from "./heard.ts";

export const TRANSCRIPTION = /^conversation\.item\.input_audio_transcription\./;
const FAILED = "conversation.item.input_audio_transcription.failed";
/** Items whose transcript may still come. Those that are forgotten stay charged. */
const ITEMS_MAX = 1_000;

/** Audio that went from the buffer into the conversation, and its transcript. */
export class Committed {
  /** Null until the upstream names the item. */
  itemId: string | null = null;
  /** What its transcript reads and writes, as the upstream tells it. */
  readTokens = 0;
  writtenTokens = 0;
  isHeard = false;
  constructor(
    public seconds: number,
    public tokens: number,
    /** What its transcript reads, as estimated; none: 0. */
    public transcriptTokens: number,
    readonly heard: Heard,
  ) {}
}

/** Empty: the upstream gives it none. */
export const itemIdOf = ({ item_id }: ServerEvent): string => (typeof item_id === "string" ? item_id : "");

/** What transcripts take. What the upstream tells of an item replaces the estimate of that item. */
export class Transcripts {
  readonly #items: Committed[] = [];
  /** Not settled yet. Below zero: settled by estimates that were too high. */
  readonly #due = { promptTokens: 0, completionTokens: 0 };

  constructor(readonly formats: AudioFormats) {}

  get due(): { promptTokens: number; completionTokens: number } {
    const { promptTokens, completionTokens } = this.#due;
    return { promptTokens: Math.max(0, promptTokens), completionTokens: Math.max(0, completionTokens) };
  }

  /** What is due, which is settled then. */
  take(): { promptTokens: number; completionTokens: number } {
    const { due } = this;
    this.#due.promptTokens -= due.promptTokens;
    this.#due.completionTokens -= due.completionTokens;
    return due;
  }

  /** What the transcript of so much audio reads, if there is one. */
  estimateOf(audioTokens: number, isTranscribed = this.formats.isTranscribed): number {
    return isTranscribed && audioTokens > 0 ? audioTokens + estimateTokens(this.formats.transcriptPrompt) : 0;
  }

  commit(seconds: number, tokens: number, isTranscribed = this.formats.isTranscribed): Committed {
    const transcriptTokens = this.estimateOf(tokens, isTranscribed);
    const item = new Committed(seconds, tokens, transcriptTokens, new Heard(this.formats));
    this.#count(item, 1);
    this.#items.push(item);
    if (this.#items.length > ITEMS_MAX) this.#items.shift();
    return item;
  }

  refused(item: Committed): void {
    // One that was transcribed was committed.
    if (item.readTokens + item.writtenTokens + item.heard.tokens === 0) this.#count(item, -1);
  }

  #count({ transcriptTokens, readTokens, writtenTokens, heard }: Committed, sign: 1 | -1): void {
    this.#due.promptTokens += sign * (readTokens || transcriptTokens);
    this.#due.completionTokens += sign * (writtenTokens || heard.tokens);
  }

  /** `unnamed`: what the transcript may be of, where the upstream names no items before. */
  transcribed(event: ServerEvent, unnamed: () => Committed | undefined): void {
    const id = itemIdOf(event);
    const known = this.#items.filter(({ itemId }) => itemId === id);
    const item =
      known.find(({ readTokens, writtenTokens }) => readTokens + writtenTokens === 0) ??
      unnamed() ??
      (id ? known.at(-1) : undefined) ??
      this.commit(0, 0);
    const { input_tokens, output_tokens, seconds } = isObject(event.usage) ? event.usage : {};
    const told = this.formats.tokensOf(numberOf(seconds), "input");
    const read = isPlausible(input_tokens) ? input_tokens : isPlausible(told) ? told : 0;
    this.#count(item, -1);
    item.itemId = id;
    const hasFailed = event.type === FAILED;
    item.isHeard ||= !hasFailed;
    item.transcriptTokens = item.isHeard ? item.transcriptTokens || this.estimateOf(item.tokens, true) : 0;
    item.readTokens = Math.max(item.readTokens, read);
    item.writtenTokens = Math.max(item.writtenTokens, isPlausible(output_tokens) ? output_tokens : 0);
    if (!hasFailed) item.heard.add(event);
    this.#count(item, 1);
  }
}
