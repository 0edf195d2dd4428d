import type { RateLimit } from "../../bus/contract.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import type { UsageParts } from "../../kernel/usage-parts.ts";
import type { Admitted } from "./admitted.ts";
import type { MeteringService } from "./service.ts";

export interface TokenBound {
  /** Of the prompt as sent. Read only if something limits the request, so it can be counted lazily. */
  readonly promptTokens: number;
  /** Answers written in parallel; by default one. */
  readonly answers?: number;
  /** How much of this hold each answer may use; by default all of it. */
  perChoice?(outputTokens: number): number;
  readonly outputTokensMax: number;
  /** The most that is written once the bound is lowered; by default all but what cannot be paid. */
  readonly outputTokensLowered?: number;
  /** The bound, over all choices, may be lowered to this if not all of it can be paid. */
  readonly outputTokensMin: number;
  /** Less can not be asked for. */
  readonly outputTokensFloor?: number;
  /** Tools that the vendor charges for besides tokens: a field without a price, and the most that they can cost. */
  readonly tools?: { readonly unpriced: string | null; readonly mostUsd: number } | null;
  /** Whether such a word is in the request; if absent, it may be. */
  mentions?(word: RegExp): boolean;
}

/** The most that a request can cost, which is held before it is sent. */
export type Bound = TokenBound | FixedBound;
export interface FixedBound {
  readonly costUsd: number;
  /** Counted in quotas; by default none. */
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
  /** The request's record; absent if the charge is not a request of its own, or no records are kept. */
  record?: RequestRecord | null;
}

/** What a row says besides the usage. */
export type RecordOptions = Omit<AdmitOptions, "bound">;

export interface FinalUsage extends UsageParts {
  /** `gateway`, `rpc`, `realtime`, or the backend capability name. */
  backend: string;
  estimated: boolean;
  /** An explicit price (video); otherwise the pricing table decides. */
  costUsd?: number;
  /** What the vendor's own tools cost besides tokens. */
  toolsUsd?: number;
  /** Cut short without a report by the upstream: charged at the rates of the hold. */
  isUntold?: boolean;
  rates?: { inputNanoUsd: number; outputNanoUsd: number };
  /** The cost that the upstream reports, if the operator trusts it. */
  reportedUsd?: number;
}

/** One admitted request. Exactly one of `settle` and `release` ends it; later calls do nothing. */
export type Admission = Pick<
  Admitted,
  "outputTokensHeld" | "lowered" | "grow" | "sent" | "writtenTokens" | "givenUp" | "settle" | "release"
>;

/** Points of an account that nothing else can take until it is released. */
export interface PointsHold {
  release(): void;
}

export interface Rate extends RateLimit {
  refuse(max: number, waitMs: number): never;
}

export type Metering = Pick<
  MeteringService,
  | "admit"
  | "boundOf"
  | "resume"
  | "ratesOf"
  | "checkRate"
  | "record"
  | "write"
  | "written"
  | "holdPoints"
  | "payerOf"
>;
