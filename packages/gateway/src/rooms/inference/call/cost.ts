import { hasEscapedLetters, withoutEscapedLetters } from "../../../kernel/json-scan.ts";
import type { ImageLook, UnitPrice, WorkUnit } from "../../billing/index.ts";
import { estimatePromptTokens, FETCHED_TOKENS, type TokenBound } from "../../metering/index.ts";
import { OPTIONS, type OutputLimit, type SpendFields } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import type { VendorTools } from "../request/vendor-side.ts";
import type { Outgoing } from "./outgoing.ts";
import { ABSURD, type ReportedUsage, type UsageReport } from "./usage-tail.ts";

/** Output tokens held initially when neither the request nor the price table limits the answer. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
const CONTEXT_TOKENS_UNKNOWN = 128_000;
/** We never limit an answer to less than this, unless the client asks for less. */
const OUTPUT_TOKENS_LOWERED_MIN = 256;

/** Allowance for the JSON around a list of token numbers, which is not charged. */
const FRAME_TOKENS = 50;

/** Tokens of a field that holds token numbers, plus the other fields. Null when it holds something else. */
function numberedTokens(payload: Payload, field: "input" | "prompt"): number | null {
  const tokens = payload.tokenCount(field);
  if (tokens === null) return null;
  const beside = estimatePromptTokens(payload.compose(new Map([[field, "[]"]])).bytes(), false);
  return tokens + Math.max(0, beside - FRAME_TOKENS);
}

export class EmbeddingsBound implements TokenBound {
  readonly outputTokensMax = 0;
  readonly outputTokensMin = 0;
  #promptTokens: number | null = null;

  constructor(
    readonly body: Pick<Outgoing, "bytes">,
    readonly payload: Payload,
  ) {}

  get promptTokens(): number {
    this.#promptTokens ??=
      numberedTokens(this.payload, "input") ?? estimatePromptTokens(this.body.bytes(), false);
    return this.#promptTokens;
  }
}

interface ChatBoundOptions {
  body: Pick<Outgoing, "bytes">;
  payload: Payload;
  mayHaveMedia: boolean;
  spend: SpendFields;
  answers: number;
  tools: VendorTools | null;
  /** The longest answer of this model when nothing limits it, if known. */
  usualTokens?: number;
  contextTokens: number | null;
  /** Fields that limit the answer on the backend. */
  honoured: readonly string[];
  /** The least that the backend can be limited to; absent: any limit. */
  limitMin?: number;
}

const isHonoured = ({ name, inOptions }: OutputLimit, honoured: readonly string[]): boolean =>
  honoured.includes(inOptions ? `${OPTIONS}.${name}` : name);

/** The most that a chat can cost, from what is sent and what the model can write. */
export class ChatBound implements TokenBound {
  readonly outputTokensMax: number;
  readonly outputTokensLowered: number;
  readonly outputTokensMin: number;
  readonly outputTokensFloor: number;
  readonly isLimitSent: boolean;
  readonly tools: VendorTools | null;
  readonly answers: number;
  #promptTokens: number | null = null;

  constructor(readonly options: ChatBoundOptions) {
    const { limits, choices, predictionTokens } = options.spend;
    const { honoured, limitMin = 0, usualTokens = OUTPUT_TOKENS_UNKNOWN } = options;
    this.tools = options.tools;
    this.answers = options.answers;
    let largest = 0;
    let isLimitSent = false;
    for (const limit of limits) {
      if (limit.value > largest) largest = limit.value;
      if (isHonoured(limit, honoured)) isLimitSent = true;
    }
    // The server ignores a limit under a name that it does not know.
    const perChoice = Math.max(largest, isLimitSent ? limitMin : usualTokens);
    this.isLimitSent = isLimitSent;
    this.outputTokensMax = perChoice * choices + predictionTokens;
    this.outputTokensFloor = Math.max(1, limitMin) * choices + predictionTokens;
    // When we set a limit, it is in a field that the server knows, so the client's own limit holds.
    const lowered = Math.min(perChoice, Math.max(largest || perChoice, limitMin));
    this.outputTokensLowered = lowered * choices + predictionTokens;
    this.outputTokensMin = Math.min(lowered, OUTPUT_TOKENS_LOWERED_MIN) * choices + predictionTokens;
  }

  get promptTokens(): number {
    this.#promptTokens ??= this.#countPrompt();
    return this.#promptTokens;
  }
  #countPrompt(): number {
    const { spend, payload, body, mayHaveMedia, contextTokens } = this.options;
    const numbered = spend.isNumbered ? numberedTokens(payload, "prompt") : null;
    const tokens = numbered ?? estimatePromptTokens(body.bytes(), mayHaveMedia);
    return tokens < FETCHED_TOKENS ? tokens : (contextTokens ?? CONTEXT_TOKENS_UNKNOWN);
  }

  mentions(word: RegExp): boolean {
    const text = this.options.body.bytes().toString("latin1");
    // Checking for escapes is much cheaper than decoding them.
    return word.test(text) || (hasEscapedLetters(text) && word.test(withoutEscapedLetters(text)));
  }

  /** The output limit sent to the backend, over all choices; null when none was sent. */
  limitSentFor(loweredTo: number | null): number | null {
    const { choices, predictionTokens } = this.options.spend;
    if (loweredTo !== null) return loweredTo * choices + predictionTokens;
    return this.isLimitSent ? this.outputTokensMax : null;
  }

  /** The limit for each choice when this much is held for all of them. */
  perChoice(outputTokens: number): number {
    const { choices, predictionTokens } = this.options.spend;
    return Math.max(1, Math.floor((outputTokens - predictionTokens) / choices));
  }

  /** Fields that cap each choice at `tokens`: all that the client used, and one that the backend honours. */
  lowered(tokens: number, honoured: readonly string[]): ReadonlyMap<string, string> {
    const { payload, spend } = this.options;
    const set = new Map<string, string>();
    const options: Record<string, number> = {};
    for (const { name, inOptions, value } of spend.limits) {
      const lowered = Math.min(value, tokens);
      if (inOptions) options[name] = lowered;
      else set.set(name, String(lowered));
    }
    if (Object.keys(options).length > 0)
      set.set(OPTIONS, JSON.stringify({ ...(payload.value(OPTIONS) as object), ...options }));
    if (!spend.limits.some((limit) => isHonoured(limit, honoured))) set.set(honoured[0]!, String(tokens));
    return set;
  }
}

type WorkCounts = Readonly<Partial<Record<WorkUnit, number>>>;

interface WorkSize {
  counts: WorkCounts;
  /** In addition to the tokens of a JSON body. */
  promptTokens: number;
  outputTokens: number;
}

/** What a request asks for, from its body as it is sent. */
export interface AskedWork extends WorkSize {
  units: readonly WorkUnit[];
  look?: ImageLook;
  /** The body is a form: `promptTokens` is the complete count. */
  isForm?: boolean;
  /** Unless its type is JSON, the answer is a transcript: nothing in it is a report, whatever it looks like. */
  isWords?: boolean;
  /** Charged if the upstream reports nothing; anything not given here is charged as held. */
  counted?: Partial<WorkSize>;
}

/** What an answer says was made. Anything it does not mention counts as asked for. */
export interface Made {
  counts?: WorkCounts;
  look?: Partial<ImageLook>;
  problem?: string;
}

/** The most that a piece of work can cost: by its unit price, or by tokens for a model without one. */
export class WorkBound implements TokenBound {
  readonly mostUsd: number | null;
  readonly outputTokensMax: number;
  /** Equal to the maximum: such work cannot be shortened. */
  readonly outputTokensMin: number;
  readonly outputTokensFloor: number;

  constructor(
    readonly options: { asked: AskedWork; price: UnitPrice | null; body: Pick<Outgoing, "bytes"> },
  ) {
    const { asked, price } = options;
    this.mostUsd = price && price.usd(asked.look) * (asked.counts[price.unit] ?? 1);
    this.outputTokensMax = this.outputTokensMin = this.outputTokensFloor = asked.outputTokens;
  }

  get promptTokens(): number {
    return this.options.asked.promptTokens + this.#bodyTokens;
  }
  /** Charged if the upstream reports nothing. */
  get counted(): { promptTokens: number; outputTokens: number } {
    const { promptTokens, outputTokens, counted } = this.options.asked;
    return {
      promptTokens: (counted?.promptTokens ?? promptTokens) + this.#bodyTokens,
      outputTokens: counted?.outputTokens ?? outputTokens,
    };
  }
  get #bodyTokens(): number {
    const { asked, body } = this.options;
    return asked.isForm ? 0 : estimatePromptTokens(body.bytes(), false);
  }

  /** Priced by what the upstream says was made, even if that exceeds the hold. */
  costOf({ counts, look }: Made): number {
    const { asked, price } = this.options;
    const count = { ...asked.counts, ...asked.counted?.counts, ...counts }[price!.unit] ?? 1;
    return price!.usd(asked.look && { ...asked.look, ...look }) * count;
  }
}

/** How a call ended; decides what is owed. */
export interface CallEnd {
  /** Whether the answer is complete; otherwise one side cut it short. */
  isWhole: boolean;
  /** The gateway stopped it because the payer cannot cover more. */
  isStopped?: boolean;
  reported: UsageReport;
  /** Our own count of the delivered text's tokens. For work that is not text: above 0 once anything was delivered. */
  delivered: number;
  /** Calls of the vendor's own tools that the answer shows. */
  toolCalls?: readonly string[];
  /** For work other than chats and vectors: what the answer says was made. */
  made?: Made;
}

export const NOTHING_CAME: CallEnd = { isWhole: false, reported: null, delivered: 0 };

interface OwedUsage extends ReportedUsage {
  isEstimated: boolean;
  isUntold?: boolean;
  costUsd?: number;
}

interface Circumstances {
  /** It was sent and then ended on our side: client gone, cancelled, revoked, our deadline, or shutdown. */
  isOwedUnanswered: boolean;
  /** For a truncated answer: output tokens that the model can have produced by then, visible or hidden. */
  writtenTokens: number;
}

/** What is owed: the report of a complete answer, else the largest of report, count and possible output. Null: nothing. */
export function owedFor(
  end: CallEnd,
  bound: ChatBound | EmbeddingsBound | WorkBound,
  { isOwedUnanswered, writtenTokens }: Circumstances,
): OwedUsage | null {
  if (bound instanceof WorkBound) return owedForWork(end, bound, isOwedUnanswered);
  const { isWhole, reported, delivered } = end;
  const usage = reported === ABSURD || reported === null ? null : completed(reported, delivered, bound);
  if (isWhole && usage) return usage;
  if (reported === null && delivered === 0 && !isOwedUnanswered) return null;
  const written = isWritten(bound) ? Math.max(delivered, writtenTokens) : 0;
  return { ...atLeast(usage, bound.promptTokens, written), isUntold: !isWhole && usage === null };
}

/** Work with a unit price owes what its answer says was made; if it was cut short, at least all that was asked for. */
function owedForWork(
  { isWhole, reported, delivered, made }: CallEnd,
  bound: WorkBound,
  isOwedUnanswered: boolean,
): OwedUsage | null {
  if (!isWhole && delivered === 0 && !isOwedUnanswered) return null;
  if (bound.mostUsd !== null) {
    const madeUsd = bound.costOf(made ?? {});
    const costUsd = isWhole ? madeUsd : Math.max(madeUsd, bound.costOf({}));
    return { promptTokens: 0, completionTokens: 0, isEstimated: !isWhole, costUsd };
  }
  const usage = reported === ABSURD ? null : reported;
  const isComplete = usage !== null && (usage.lacks === undefined || usage.lacks === "both");
  if (isWhole && isComplete) return { ...usage, isEstimated: false };
  const { promptTokens, outputTokens } = bound.counted;
  return atLeast(usage, promptTokens, isWhole ? outputTokens : bound.outputTokensMax);
}

/** The larger of the report and our count. */
const atLeast = (
  reported: ReportedUsage | null,
  promptTokens: number,
  completionTokens: number,
): OwedUsage => ({
  ...reported,
  promptTokens: Math.max(reported?.promptTokens ?? 0, promptTokens),
  completionTokens: Math.max(reported?.completionTokens ?? 0, completionTokens),
  isEstimated: true,
});

const isWritten = (bound: TokenBound): boolean => !(bound instanceof EmbeddingsBound);

/** Fills the gaps of a report. If only the sum is reported, the delivered tokens count as output. */
function completed(reported: ReportedUsage, delivered: number, bound: TokenBound): OwedUsage {
  const { promptTokens, completionTokens, lacks } = reported;
  if (lacks === "prompt") return { promptTokens: bound.promptTokens, completionTokens, isEstimated: true };
  if (lacks === undefined || !isWritten(bound)) return { ...reported, isEstimated: false };
  if (lacks === "completion") return { promptTokens, completionTokens: delivered, isEstimated: true };
  const output = Math.min(promptTokens, delivered);
  return { promptTokens: promptTokens - output, completionTokens: output, isEstimated: false };
}

/** Implausible figures of the upstream. They are charged, because the operator chose the upstream, and flagged. */
export function problemsIn(
  { isWhole, reported, made }: CallEnd,
  owed: OwedUsage,
  outgoing: Outgoing,
): string[] {
  const problems: (string | null | undefined)[] = [made?.problem];
  const heldUsd = outgoing.bound instanceof WorkBound ? outgoing.bound.mostUsd : null;
  if (heldUsd !== null && owed.costUsd! > heldUsd)
    problems.push(`work for ${owed.costUsd} USD, where what was asked for costs ${heldUsd} USD at most`);
  if (reported === ABSURD) problems.push("impossible usage figures; they were not charged");
  else if (reported !== null && isWhole) problems.push(outgoing.implausible(owed));
  return problems.filter((problem) => problem != null);
}
