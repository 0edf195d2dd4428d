import { isObject } from "../../../kernel/json.ts";
import type { Admission } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import type { AudioFormats } from "./audio.ts";
import { Heard } from "./heard.ts";

/** More is held when this part of what is held was heard. */
const GROW_AT = 0.75;
/** By so much at a time: ten seconds of speech or more. */
const GROW_TOKENS = 256;
/** What an upstream reports is believed up to this. */
const REPORTED_TOKENS_MAX = 10_000_000;
/** Ways for a response to end before its time. */
const CUT = new Set(["cancelled", "failed", "incomplete"]);

export interface TurnUsage {
  promptTokens: number;
  completionTokens: number;
  estimated: boolean;
}

const believed = (value: unknown): number | null =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= REPORTED_TOKENS_MAX
    ? value
    : null;

/** One response: what is held for it, what was heard of it, and what it comes to in the end. */
export class Turn {
  #heard: Heard;
  #heldTokens: number;
  #heldPromptTokens: number;
  #deliveredTokens = 0;
  /** The client asked for its end. */
  isCancelled = false;

  readonly requestId: string;
  /** What it reads; `promptTokens` may grow. */
  readonly read: { promptTokens: number; conversationTokens: number };
  /** It does not join the conversation. */
  readonly isApart: boolean;

  constructor(
    readonly admission: Admission,
    {
      formats,
      requestId,
      read,
      isApart,
    }: Pick<Turn, "requestId" | "read" | "isApart"> & { formats: AudioFormats },
  ) {
    this.requestId = requestId;
    this.read = read;
    this.isApart = isApart;
    this.#heard = new Heard(formats);
    this.#heldTokens = admission.outputTokensHeld;
    this.#heldPromptTokens = read.promptTokens;
  }

  /** Of what was let through to the client. */
  get deliveredTokens(): number {
    return this.#deliveredTokens;
  }

  /** Whether the event may be let through: what it brings is held for, if it can be. */
  hear(event: ServerEvent): boolean | Promise<boolean> {
    this.#heard.add(event);
    const heard = this.#heard.tokens;
    const keep = (isHeld: boolean): boolean => {
      if (isHeld) this.#deliveredTokens = heard;
      return isHeld;
    };
    const held = this.#cover(heard);
    return held instanceof Promise ? held.then(keep) : keep(held);
  }

  #cover(heard: number): boolean | Promise<boolean> {
    const readsMore = this.read.promptTokens > this.#heldPromptTokens;
    if (!readsMore && heard <= this.#heldTokens * GROW_AT) return true;
    const orExactly = (grown: boolean): boolean | Promise<boolean> =>
      grown || (!readsMore && heard <= this.#heldTokens) || this.#grow(heard);
    const grown = this.#grow(heard + GROW_TOKENS);
    return grown instanceof Promise ? grown.then(orExactly) : orExactly(grown);
  }

  #grow(completionTokens: number): boolean | Promise<boolean> {
    const { promptTokens } = this.read;
    const keep = (grown: boolean): boolean => {
      if (grown) {
        this.#heldTokens = Math.max(this.#heldTokens, completionTokens);
        this.#heldPromptTokens = promptTokens;
      }
      return grown;
    };
    const grown = this.admission.grow({ promptTokens, completionTokens });
    return grown instanceof Promise ? grown.then(keep) : keep(grown);
  }

  /** What a response comes to that ended with this `response.done`. */
  ended(event: ServerEvent): TurnUsage & { reported: boolean; isAbsurd: boolean } {
    this.#heard.add(event);
    const response = (event.response ?? {}) as { status?: unknown; usage?: Record<string, unknown> | null };
    const counted = { promptTokens: this.read.promptTokens, completionTokens: this.#heard.tokens };
    const prompt = believed(response.usage?.input_tokens);
    const completion = believed(response.usage?.output_tokens);
    const reported = prompt !== null && completion !== null;
    const isAbsurd = isObject(response.usage) && !reported;
    const isCut = CUT.has(String(response.status));
    // An upstream that fails without a word has done nothing for the client.
    if (response.status === "failed" && counted.completionTokens === 0)
      return {
        promptTokens: prompt ?? 0,
        completionTokens: completion ?? 0,
        estimated: !reported,
        reported,
        isAbsurd,
      };
    return {
      promptTokens: isCut ? Math.max(prompt ?? 0, counted.promptTokens) : (prompt ?? counted.promptTokens),
      completionTokens: isCut
        ? Math.max(completion ?? 0, counted.completionTokens)
        : (completion ?? counted.completionTokens),
      estimated: !reported,
      reported,
      isAbsurd,
    };
  }

  /** What it comes to when it was broken off. */
  brokenOff(): TurnUsage {
    return {
      promptTokens: this.read.promptTokens,
      completionTokens: this.#deliveredTokens,
      estimated: true,
    };
  }
}
