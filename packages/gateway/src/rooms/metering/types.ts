import type { RateLimit } from "../../bus/contract.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import type { UsageParts } from "../../kernel/usage-parts.ts";
import type { Admitted } from "./admitted.ts";
import type { MeteringService } from "./service.ts";

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

/** What other rooms ask of it. */
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
