import { isObject } from "../../../kernel/json.ts";
import { isPlausible, partsIn, type UsageParts } from "../../../kernel/usage-parts.ts";
import type { Admission } from "../../metering/index.ts";
import { endIn, type ServerEvent } from "../server-events.ts";
import type { AudioFormats } from "./audio.ts";
import type { Read } from "./context.ts";
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

/** What an end reports; null where that is impossible. */
function figuresIn({ response }: ServerEvent) {
  const usage = isObject(response) && isObject(response.usage) ? response.usage : null;
  const prompt = believed(usage?.input_tokens);
  const completion = believed(usage?.output_tokens);
  const reported = prompt !== null && completion !== null && isPlausible(usage?.total_tokens ?? 0);
  return { usage, prompt, completion, reported };
}

/** What was charged for a response, and how it ended. */
export type ClosedTurn = UsageParts & Pick<Turn, "endedBy">;

/** What an end that is told later reports beyond what was charged; it is charged then. */
export function lateUsage(charged: ClosedTurn, event: ServerEvent): TurnUsage {
  const { usage, prompt, completion, reported } = figuresIn(event);
  const more = { promptTokens: 0, completionTokens: 0, audioInputTokens: 0, audioOutputTokens: 0 };
  const told = reported ? partsIn(usage!, { promptTokens: prompt!, completionTokens: completion! }) : null;
  for (const name of Object.keys(more) as (keyof typeof more)[]) {
    const before = charged[name] ?? 0;
    charged[name] = Math.max(before, told?.[name] ?? 0);
    more[name] = charged[name] - before;
  }
  more.audioInputTokens = Math.min(more.audioInputTokens, more.promptTokens);
  more.audioOutputTokens = Math.min(more.audioOutputTokens, more.completionTokens);
  return { ...more, estimated: false };
}

export class Turn {
  readonly heard: Heard;
  #heldTokens: number;
  #heldPromptTokens: number;
  isCancelled = false;
  /** What the model can have written when it was told to stop, or was heard after that; null: it goes on. */
  #writtenTokens: number | null = null;
  /** It was sent, or the upstream has begun it. */
  isOwed = false;
  /** The upstream has told of its beginning. */
  isCreated = false;
  /** The type of its end where the upstream announces no responses: such an end without an id ends another one. */
  endedBy: unknown = null;
  /** Of the client event that asked for it. */
  eventId: string | null = null;
  /** By the upstream; null: none, or it has not begun. */
  id: string | null = null;
  /** It may be one of these, that the client has asked for. */
  others: readonly Turn[] = [];

  /** It is not added to the conversation. */
  readonly isApart: boolean;
  /** It reads what was sent with it, and not the conversation. */
  readonly hasOwnInput: boolean;

  constructor(
    readonly admission: Admission,
    readonly requestId: string,
    readonly read: Read,
    /** What the client set for it. */
    readonly own: Record<string, unknown>,
    formats: AudioFormats,
  ) {
    this.isApart = own.conversation === "none";
    this.hasOwnInput = Array.isArray(own.input);
    this.heard = new Heard(formats);
    this.#heldTokens = admission.outputTokensHeld;
    this.#heldPromptTokens = read.promptTokens;
  }

  mayHaveRead({ promptTokens, conversationTokens }: Read): void {
    if (promptTokens > this.read.promptTokens) Object.assign(this.read, { promptTokens, conversationTokens });
  }

  sent(): void {
    this.isOwed = true;
    this.admission.sent();
  }

  cancelled(): void {
    this.isCancelled = true;
    this.#writtenTokens ??= this.admission.writtenTokens();
  }

  /** The upstream may have refused the cancelling. */
  mayGoOn(): void {
    this.#writtenTokens = null;
  }

  /** Counts the event and grows the hold for it; false when it cannot be paid. */
  hear(event: ServerEvent): Promise<boolean> {
    this.heard.add(event);
    if (this.#writtenTokens !== null) this.#writtenTokens = this.admission.writtenTokens();
    return this.cover(this.heard.tokens);
  }

  /** Grows the hold for so much output, and for what was read since; false when it cannot be paid. */
  async cover(completionTokens: number): Promise<boolean> {
    const readsMore = this.read.promptTokens > this.#heldPromptTokens;
    return (
      (!readsMore && completionTokens <= this.#heldTokens * GROW_AT) ||
      (await this.#grow(completionTokens + GROW_TOKENS)) ||
      (!readsMore && completionTokens <= this.#heldTokens) ||
      (await this.#grow(completionTokens))
    );
  }

  async #grow(completionTokens: number): Promise<boolean> {
    const { promptTokens } = this.read;
    if (!(await this.admission.grow({ promptTokens, completionTokens }))) return false;
    this.#heldTokens = Math.max(this.#heldTokens, completionTokens);
    this.#heldPromptTokens = promptTokens;
    return true;
  }

  /** The usage of a response that ends with this `response.done`. */
  ended(event: ServerEvent): TurnUsage & { isAbsurd: boolean } {
    this.endedBy = this.isCreated ? null : event.type;
    this.heard.add(event);
    const status = endIn(event)!;
    const counted = { promptTokens: this.read.promptTokens, completionTokens: this.heard.tokens };
    const { usage, prompt, completion, reported } = figuresIn(event);
    const isAbsurd = usage !== null && !reported;
    const isCut = CUT.has(status);
    const whole = {
      promptTokens: prompt ?? counted.promptTokens,
      completionTokens: isCut
        ? Math.max(
            completion ?? this.#writtenTokens ?? this.admission.writtenTokens(),
            counted.completionTokens,
          )
        : (completion ?? counted.completionTokens),
    };
    // A failure without any output costs only what the upstream reports.
    if (status === "failed" && counted.completionTokens === 0)
      Object.assign(whole, { promptTokens: prompt ?? 0, completionTokens: completion ?? 0 });
    const told = reported ? partsIn(usage!, whole) : whole;
    return { ...(told === whole ? this.#asSound(whole) : told), estimated: !reported, isAbsurd };
  }

  brokenOff(): TurnUsage {
    const { promptTokens } = this.read;
    const completionTokens = Math.max(
      this.heard.tokens,
      this.#writtenTokens ?? this.admission.writtenTokens(),
    );
    return { ...this.#asSound({ promptTokens, completionTokens }), estimated: true };
  }

  /** Where the upstream does not say what of it was sound: all but the settings, once there was any. */
  #asSound(whole: UsageParts): UsageParts {
    if (!this.heard.formats.isUsed) return whole;
    const audioInputTokens = Math.min(whole.promptTokens, this.read.conversationTokens);
    return { ...whole, audioInputTokens, audioOutputTokens: whole.completionTokens };
  }
}
