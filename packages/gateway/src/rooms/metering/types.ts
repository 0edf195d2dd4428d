import type { RateLimit } from "../../bus/contract.ts";
import type { Actor } from "../../kernel/context.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Outcome, RequestRecord } from "../../kernel/request-record.ts";
import type { RequestLine } from "../../kernel/request-row.ts";
import type { UsageParts } from "../../kernel/usage-parts.ts";
import type { AccountRef } from "../ledger/index.ts";

export interface TokenBound {
  /** Of the prompt as it is sent. Read only when something limits the request, so it may be counted then. */
  readonly promptTokens: number;
  /** The same, counted exactly: used when `promptTokens` does not fit what is left. */
  countPromptTokens?(): number;
  /** Answers that are written at once; absent: one. */
  readonly choices?: number;
  /** Over all choices together. */
  readonly outputTokensMax: number;
  /** What the bound may be lowered to when not all of it can be paid; over all choices together. */
  readonly outputTokensMin: number;
  /** Whether such a word stands in what is sent; absent: that is not known, so it may. */
  mentions?(word: RegExp): boolean;
}

/** The most that a request can cost, so that a hold can be taken before it is sent. */
export type Bound = TokenBound | { readonly costUsd: number };

export interface AdmitOptions {
  requestId: string;
  payer: Payer;
  /** The model id that is routed to. */
  model: string;
  /** The operator's own hardware serves it. */
  isOwn?: boolean;
  bound: Bound;
  refId: string | null;
  /** What is noted of the request that is charged; absent: the charge is not a request of its own, or none are noted. */
  record?: RequestRecord | null;
}

/** A request without its bound: what a row says besides the usage. */
export type RecordOptions = Omit<AdmitOptions, "bound">;

export interface FinalUsage extends UsageParts {
  /** `gateway`, `rpc`, `realtime`, or the backend capability name. */
  backend: string;
  /** True when the tokens are our own estimate. */
  estimated: boolean;
  /** An explicit price (video); otherwise the pricing table decides. */
  costUsd?: number;
  /** What the upstream says that it costs, where the operator believes it. */
  reportedUsd?: number;
}

/** One admitted request. Exactly one of `settle` and `release` ends it; later calls do nothing. */
export interface Admission {
  /**
   * Output tokens (all choices together) that are held for: fewer than asked for when the bound had to be lowered.
   * The caller makes sure that the upstream does not write more, or grows the hold first.
   */
  readonly outputTokensHeld: number;
  readonly lowered: boolean;
  /**
   * Extends the hold to this total; false when it cannot grow. What points cannot cover as a whole may be held
   * in the quota as a whole.
   */
  grow(total: { promptTokens: number; completionTokens: number }): Promise<boolean>;
  /** The request is being sent. */
  sent(): void;
  /**
   * Output tokens that the model can have written since then, seen or not, by the pace of its completed answers; at most
   * what is held. Owed where an answer is cut short and the upstream does not say what it comes to.
   */
  writtenTokens(): number;
  /**
   * The request is in the journal before any more answers are sent. Never throws: a failure is logged. Returns its price
   * in nanodollars; null when there is none. `outcome`: how the request fails all the same.
   */
  settle(usage: FinalUsage, outcome?: Outcome | null): number | null;
  /** Nothing is owed; the hold ends. */
  release(): void;
}

/** Points of an account that nothing else can take until it is released. */
export interface PointsHold {
  release(): void;
}

export interface Rate extends RateLimit {
  refuse(max: number, waitMs: number): never;
}

/** Everything that spends goes through here. */
export interface Metering {
  /** Checks quota and takes the hold, or throws the refusal. */
  admit(options: AdmitOptions): Promise<Admission>;
  /**
   * Holds again what was admitted before a restart. It is already admitted, so nothing is checked or refused:
   * the hold is taken where it would be charged now.
   */
  resume(options: RecordOptions & { bound: { readonly costUsd: number } }): Promise<Admission>;
  /** Requests a minute that a key may make: its own limit, the tier's and the group's. The first that is full refuses. */
  ratesOf(payer: Payer): readonly Rate[];
  /** Counts one request against them, or throws the refusal. */
  checkRate(payer: Payer): Promise<void>;
  /**
   * Journals usage that is owed without an admission of this process: a job that was admitted before a
   * restart. Once per request id, like every row. Never throws.
   */
  record(options: RecordOptions, usage: FinalUsage): void;
  /** Journals a request for which nothing is owed; false: it cannot be now. */
  write(line: RequestLine): boolean;
  /**
   * Usage that was settled or recorded so far is in the journal when this returns. Answers wait for that anyway; to be
   * called before an answer is stored, or that it was charged.
   */
  written(): void;
  /**
   * Holds points for a transfer, so that it cannot move away what requests under way hold; null when fewer are free.
   * To be released when the transfer is committed, or will not be.
   */
  holdPoints(account: AccountRef, points: number): Promise<PointsHold | null>;
  /** Who pays for what a signed-in person does. */
  payerOf(actor: Pick<Actor, "userId">): Promise<Payer>;
}
