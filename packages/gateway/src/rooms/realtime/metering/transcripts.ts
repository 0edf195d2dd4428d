import { isObject } from "../../../kernel/json.ts";
import { isPlausible } from "../../../kernel/usage-parts.ts";
import { estimateTokens } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import type { AudioFormats } from "./audio.ts";
import { Heard } from "./heard.ts";

export const TRANSCRIPTION = /^conversation\.item\.input_audio_transcription\./;
/** Items whose transcript may still come. Those that are forgotten stay charged. */
const ITEMS_MAX = 1_000;
/** Of an item whose upstream gives it none. */
const NO_ID = "";

/** Audio that went from the buffer into the conversation, and its transcript. */
export interface Committed {
  seconds: number;
  tokens: number;
  /** Null until the upstream names the item. */
  itemId: string | null;
  /** What its transcript reads, as estimated; none: 0. */
  transcriptTokens: number;
  /** The same, and what it writes, as the upstream tells it. */
  readTokens: number;
  writtenTokens: number;
  readonly heard: Heard;
}

const itemIdOf = ({ item_id }: ServerEvent): string => (typeof item_id === "string" ? item_id : NO_ID);

const isTold = ({ readTokens, writtenTokens }: Committed): boolean => readTokens + writtenTokens > 0;

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

  tokensOf(audioTokens: number): number {
    return audioTokens > 0 ? audioTokens + estimateTokens(this.formats.transcriptPrompt) : 0;
  }

  commit(seconds: number, tokens: number): Committed {
    const item: Committed = {
      seconds,
      tokens,
      itemId: null,
      transcriptTokens: this.formats.isTranscribed ? this.tokensOf(tokens) : 0,
      readTokens: 0,
      writtenTokens: 0,
      heard: new Heard(this.formats),
    };
    this.#count(item, 1);
    this.#items.push(item);
    if (this.#items.length > ITEMS_MAX) this.#items.shift();
    return item;
  }

  named(item: Committed, event: ServerEvent): void {
    item.itemId = itemIdOf(event);
  }

  refused(item: Committed): void {
    this.#count(item, -1);
    this.#forget(item);
  }

  /** Both turned out to be one item. */
  join(item: Committed, part: Committed): void {
    item.seconds += part.seconds;
    item.tokens += part.tokens;
    item.transcriptTokens += part.transcriptTokens;
    this.#forget(part);
  }

  #forget(item: Committed): void {
    const at = this.#items.indexOf(item);
    if (at !== -1) this.#items.splice(at, 1);
  }

  #count({ transcriptTokens, readTokens, writtenTokens, heard }: Committed, sign: 1 | -1): void {
    this.#due.promptTokens += sign * (readTokens || transcriptTokens);
    this.#due.completionTokens += sign * Math.max(writtenTokens, heard.tokens);
  }

  /** `unnamed`: what the transcript may be of, where the upstream names no items before. */
  transcribed(event: ServerEvent, unnamed: () => Committed | undefined): void {
    const id = itemIdOf(event);
    const known = this.#items.filter(({ itemId }) => itemId === id);
    const item =
      known.find((each) => !isTold(each)) ??
      unnamed() ??
      (id === NO_ID ? undefined : known.at(-1)) ??
      this.commit(0, 0);
    const { input_tokens, output_tokens, seconds } = isObject(event.usage) ? event.usage : {};
    const heardSeconds = isPlausible(Math.ceil(Number(seconds))) ? Number(seconds) : 0;
    const readTokens = isPlausible(input_tokens)
      ? input_tokens
      : this.formats.tokensOf(heardSeconds, "input");
    this.#count(item, -1);
    this.named(item, event);
    item.transcriptTokens ||= this.tokensOf(item.tokens);
    item.readTokens = Math.max(item.readTokens, readTokens);
    item.writtenTokens = Math.max(item.writtenTokens, isPlausible(output_tokens) ? output_tokens : 0);
    item.heard.add(event);
    this.#count(item, 1);
  }
}
