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
  /** Answers that are written at once; absent: one. */
  readonly answers?: number;
  /** What each may have when this much is held; absent: all of it. */
  perChoice?(outputTokens: number): number;
  readonly outputTokensMax: number;
  /** What the bound may be lowered to when not all of it can be paid; over all choices together. */
  readonly outputTokensMin: number;
  /** Tools that the vendor charges for beside the tokens: a field that has no price, and the most that they can cost. */
  readonly tools?: { readonly unpriced: string | null; readonly mostUsd: number } | null;
  /** Whether such a word stands in what is sent; absent: that is not known, so it may. */
  mentions?(word: RegExp): boolean;
}

/** The most that a request can cost, so that a hold can be taken before it is sent. */
export type Bound = TokenBound | FixedBound;
export interface FixedBound {
  readonly costUsd: number;
  /** That count in quotas; absent: none. */
  readonly tokens?: number;
}

export interface AdmitOptions {
  requestId: string;
  payer: Payer;
  model: string;
  isOwn?: boolean;
  isBatch?: boolean;
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
  estimated: boolean;
  /** An explicit price (video); otherwise the pricing table decides. */
  costUsd?: number;
  /** What the vendor's own tools cost beside the tokens. */
  toolsUsd?: number;
  /** Cut short, and no upstream told anything of it: it costs what was held for such tokens. */
  isUntold?: boolean;
  rates?: { inputNanoUsd: number; outputNanoUsd: number };
  /** What the upstream says that it costs, where the operator believes it. */
  reportedUsd?: number;
}

/** One admitted request. Exactly one of `settle` and `release` ends it; later calls do nothing. */
export interface Admission {
  /** Output tokens held for, over all choices. The caller lets the upstream write no more, or grows the hold first. */
  readonly outputTokensHeld: number;
  readonly lowered: boolean;
  /** Extends the hold to this total; false when it cannot grow. Points may move to the quota as a whole. */
  grow(total: { promptTokens: number; completionTokens: number }): Promise<boolean>;
  sent(): void;
  /** Output tokens that the model can have written by now, by its pace, at most what is held. Owed when cut short. */
  writtenTokens(): number;
  /** What an attempt may have cost that nobody is charged for: it counts in a metric. */
  givenUp(usage: Pick<FinalUsage, "promptTokens" | "completionTokens" | "costUsd">): void;
  /** Journaled before more answers are sent; never throws. Returns nanodollars, or null. `outcome`: how it fails anyway. */
  settle(usage: FinalUsage, outcome?: Outcome | null): number | null;
  release(): void;
}

/** Points of an account that nothing else can take until it is released. */
export interface PointsHold {
  release(): void;
}

export interface Rate extends RateLimit {
  refuse(max: number, waitMs: number): never;
}

export interface Metering {
  /** Checks quota and takes the hold, or throws the refusal. */
  admit(options: AdmitOptions): Promise<Admission>;
  /** The most that a request can come to, for one hold over several; throws where it has no price and must have one. */
  boundOf(options: AdmitOptions): Required<FixedBound> & Pick<FinalUsage, "rates">;
  /** Holds again what was admitted before a restart, without checks, where it would be charged now. */
  resume(options: RecordOptions & { bound: FixedBound }): Promise<Admission>;
  /** Requests a minute that a key may make: its own limit, the tier's and the group's. The first that is full refuses. */
  ratesOf(payer: Payer): readonly Rate[];
  /** Counts one request against them, or throws the refusal. */
  checkRate(payer: Payer): Promise<void>;
  /** Journals usage of a job admitted before a restart; once per request id. Never throws. Returns nanodollars, or null. */
  record(options: RecordOptions, usage: FinalUsage): number | null;
  /** Journals a request for which nothing is owed; false: it cannot be now. */
  write(line: RequestLine): boolean;
  /** What was settled so far is in the journal when this returns; call it before an answer is stored. */
  written(): void;
  /** Holds points for a transfer; null when fewer are free. Release it when the transfer is committed, or will not be. */
  holdPoints(account: AccountRef, points: number): Promise<PointsHold | null>;
  payerOf(actor: Pick<Actor, "userId">): Promise<Payer>;
}
