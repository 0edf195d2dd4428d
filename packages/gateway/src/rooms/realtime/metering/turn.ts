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

type Usage = Record<string, unknown> | null | undefined;

const believed = (value: unknown): number | null => (isPlausible(value) ? value : null);

function reportedIn(usage: Usage) {
  const prompt = believed(usage?.input_tokens);
  const completion = believed(usage?.output_tokens);
  return { prompt, completion, reported: prompt !== null && completion !== null };
}

/** A response whose hold has ended. */
export interface ClosedTurn extends Pick<Turn, "requestId" | "isCreated"> {
  /** The type of the event that ended it; null: the upstream told of no end. */
  endedBy: unknown;
  charged: UsageParts;
}

/** What an end that is told later reports beyond what was charged, which then is; null: nothing. */
export function lateUsage({ charged }: ClosedTurn, { response }: ServerEvent): TurnUsage | null {
  const usage = isObject(response) && isObject(response.usage) ? response.usage : null;
  const { prompt, completion, reported } = reportedIn(usage);
  if (!reported) return null;
  const told = partsIn(usage!, { promptTokens: prompt!, completionTokens: completion! });
  const promptTokens = Math.max(0, told.promptTokens - charged.promptTokens);
  const completionTokens = Math.max(0, told.completionTokens - charged.completionTokens);
  const beyond = (name: "audioInputTokens" | "audioOutputTokens", most: number) =>
    Math.min(most, Math.max(0, (told[name] ?? 0) - (charged[name] ?? 0)));
  const more = {
    promptTokens,
    completionTokens,
    audioInputTokens: beyond("audioInputTokens", promptTokens),
    audioOutputTokens: beyond("audioOutputTokens", completionTokens),
  };
  for (const name of Object.keys(more) as (keyof typeof more)[])
    charged[name] = (charged[name] ?? 0) + more[name];
  return { ...more, estimated: false };
}

export class Turn {
  #heard: Heard;
  #heldTokens: number;
  #heldPromptTokens: number;
  #deliveredTokens = 0;
  isCancelled = false;
  /** The upstream has told of its beginning. */
  isCreated = false;
  /** By the upstream; null: none, or it has not begun. */
  id: string | null = null;

  readonly requestId: string;
  readonly read: { promptTokens: number; conversationTokens: number };
  /** What the client set for it. */
  readonly own: Record<string, unknown>;
  /** It was sent, or the upstream has begun it. */
  isOwed: boolean;
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
      isOwed,
    }: Pick<Turn, "requestId" | "read" | "own" | "isOwed"> & { formats: AudioFormats },
  ) {
    this.requestId = requestId;
    this.read = read;
    this.own = own;
    this.isOwed = isOwed;
    if (isOwed) admission.sent();
    this.isApart = own.conversation === "none";
    this.hasOwnInput = Array.isArray(own.input);
    this.#heard = new Heard(formats);
    this.#heldTokens = admission.outputTokensHeld;
    this.#heldPromptTokens = read.promptTokens;
  }

  get deliveredTokens(): number {
    return this.#deliveredTokens;
  }

  sent(): void {
    this.isOwed = true;
    this.admission.sent();
  }

  /** Counts the event and grows the hold for it; false when it cannot be paid. */
  hear(event: ServerEvent): Promise<boolean> {
    this.#heard.add(event);
    return this.cover(this.#heard.tokens);
  }

  /** Grows the hold for so much output, and for what was read since; false when it cannot be paid. */
  async cover(completionTokens: number): Promise<boolean> {
    const isHeld = await this.#isHeldFor(completionTokens);
    if (isHeld) this.#deliveredTokens = completionTokens;
    return isHeld;
  }

  async #isHeldFor(heard: number): Promise<boolean> {
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
    const response = (event.response ?? {}) as { usage?: Usage };
    const counted = { promptTokens: this.read.promptTokens, completionTokens: this.#heard.tokens };
    const { prompt, completion, reported } = reportedIn(response.usage);
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
