import { isObject } from "../../../kernel/json.ts";
import { isPlausible, partsIn, type UsageParts } from "../../../kernel/usage-parts.ts";
import type { Admission } from "../../metering/index.ts";
import { endIn, type ServerEvent } from "../server-events.ts";
import type { AudioFormats } from "./audio.ts";
import { Heard } from "./heard.ts";

/** The hold grows when the output reaches this part of it. */
const GROW_AT = 0.75;
/** Output tokens added each time: at least ten seconds of speech. */
const GROW_TOKENS = 256;
/** Statuses of a response that was cut short. */
const CUT = new Set(["cancelled", "failed", "incomplete"]);

export interface TurnUsage extends UsageParts {
  estimated: boolean;
}

const believed = (value: unknown): number | null => (isPlausible(value) ? value : null);

export class Turn {
  #heard: Heard;
  #heldTokens: number;
  #heldPromptTokens: number;
  #deliveredTokens = 0;
  isCancelled = false;

  readonly requestId: string;
  readonly read: { promptTokens: number; conversationTokens: number };
  /** It is not added to the conversation. */
  readonly isApart: boolean;
  /** It reads what was sent with it, and not the conversation. */
  readonly hasOwnInput: boolean;

  constructor(
    readonly admission: Admission,
    {
      formats,
      requestId,
      read,
      own,
    }: Pick<Turn, "requestId" | "read"> & { formats: AudioFormats; own: Record<string, unknown> },
  ) {
    this.requestId = requestId;
    this.read = read;
    this.isApart = own.conversation === "none";
    this.hasOwnInput = Array.isArray(own.input);
    this.#heard = new Heard(formats);
    this.#heldTokens = admission.outputTokensHeld;
    this.#heldPromptTokens = read.promptTokens;
  }

  get deliveredTokens(): number {
    return this.#deliveredTokens;
  }

  /** Counts the event and grows the hold for it; false when it cannot be paid. */
  async hear(event: ServerEvent | null): Promise<boolean> {
    if (event) this.#heard.add(event);
    const heard = this.#heard.tokens;
    const isHeld = await this.#cover(heard);
    if (isHeld) this.#deliveredTokens = heard;
    return isHeld;
  }

  async #cover(heard: number): Promise<boolean> {
    const readsMore = this.read.promptTokens > this.#heldPromptTokens;
    if (!readsMore && heard <= this.#heldTokens * GROW_AT) return true;
    if (await this.#grow(heard + GROW_TOKENS)) return true;
    return (!readsMore && heard <= this.#heldTokens) || this.#grow(heard);
  }

  async #grow(completionTokens: number): Promise<boolean> {
    const { promptTokens } = this.read;
    if (!(await this.admission.grow({ promptTokens, completionTokens }))) return false;
    this.#heldTokens = Math.max(this.#heldTokens, completionTokens);
    this.#heldPromptTokens = promptTokens;
    return true;
  }

  /** The usage of a response that ends with this `response.done`. */
  ended(event: ServerEvent): TurnUsage & { reported: boolean; isAbsurd: boolean } {
    this.#heard.add(event);
    const status = endIn(event)!;
    const response = (event.response ?? {}) as { usage?: Record<string, unknown> | null };
    const counted = { promptTokens: this.read.promptTokens, completionTokens: this.#heard.tokens };
    const prompt = believed(response.usage?.input_tokens);
    const completion = believed(response.usage?.output_tokens);
    const reported = prompt !== null && completion !== null;
    const isAbsurd = isObject(response.usage) && !reported;
    const isCut = CUT.has(status);
    const whole = {
      promptTokens: isCut ? Math.max(prompt ?? 0, counted.promptTokens) : (prompt ?? counted.promptTokens),
      completionTokens: isCut
        ? Math.max(completion ?? this.admission.writtenTokens(), counted.completionTokens)
        : (completion ?? counted.completionTokens),
    };
    // A failure without any output costs only what the upstream reports.
    if (status === "failed" && counted.completionTokens === 0)
      Object.assign(whole, { promptTokens: prompt ?? 0, completionTokens: completion ?? 0 });
    const told = reported ? partsIn(response.usage!, whole) : whole;
    return {
      ...(told === whole ? this.#asSound(whole) : told),
      estimated: !reported,
      reported,
      isAbsurd,
    };
  }

  brokenOff(): TurnUsage {
    const { promptTokens } = this.read;
    const completionTokens = Math.max(this.#deliveredTokens, this.admission.writtenTokens());
    return { ...this.#asSound({ promptTokens, completionTokens }), estimated: true };
  }

  /** Where the upstream does not say what of it was sound: all but the settings, once there was any. */
  #asSound(whole: UsageParts): UsageParts {
    if (!this.#heard.formats.isUsed) return whole;
    const audioInputTokens = Math.min(whole.promptTokens, this.read.conversationTokens);
    return { ...whole, audioInputTokens, audioOutputTokens: whole.completionTokens };
  }
}
