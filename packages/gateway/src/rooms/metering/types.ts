import type { Actor } from "../../kernel/context.ts";
import type { Payer } from "../../kernel/payer.ts";

/** What a request may cost at most, so that a hold can be taken before it is sent. */
export type Estimate = { promptTokens: number; completionTokensMax: number } | { costUsd: number };

export interface AdmitOptions {
  requestId: string;
  payer: Payer;
  /** The model id that is routed to. */
  model: string;
  estimate: Estimate;
  refId: string | null;
}

/** A request without its estimate: what a row says besides the usage. */
export type RecordOptions = Omit<AdmitOptions, "estimate">;

export interface FinalUsage {
  /** `gateway`, `rpc`, `realtime`, or the backend capability name. */
  backend: string;
  promptTokens: number;
  completionTokens: number;
  /** True when the tokens are our own estimate. */
  estimated: boolean;
  /** An explicit price (video); otherwise the pricing table decides. */
  costUsd?: number;
}

/** One admitted request. Exactly one of the two ends it; later calls do nothing. */
export interface Admission {
  /** Writes the usage to the journal before it returns. Never throws: a failure is logged. */
  settle(usage: FinalUsage): void;
  /** Nothing is owed; the hold ends. */
  release(): void;
}

/** The one choke point of everything that spends. */
export interface Metering {
  /** Checks quota and takes the hold, or throws the refusal. Synchronous when its caches are warm. */
  admit(options: AdmitOptions): Admission | Promise<Admission>;
  /** Per-key limits of the REST surface: the tier's and the group's requests a minute. Throws the refusal. */
  checkRate(payer: Payer): void | Promise<void>;
  /**
   * Journals usage that is owed without an admission of this process: a job that was admitted before a
   * restart. Once per request id, like every row. Never throws.
   */
  record(options: RecordOptions, usage: FinalUsage): void;
  /** Who pays for what a signed-in person does. Synchronous when the tier is known. */
  payerOf(actor: Pick<Actor, "userId">): Payer | Promise<Payer>;
}
