import type { Payer } from "../../kernel/payer.ts";
import type { Billing } from "../billing/index.ts";
import type { Admission, FinalUsage, Metering } from "../metering/index.ts";
import type { ClipFacts } from "./clip-facts.ts";

const NANO_PER_USD = 1e9;

interface JobCharge {
  requestId: string;
  payer: Payer;
  model: string;
  costUsd: number;
}

export interface JobHold {
  /** The usage is in the journal when this returns: then the job is noted as settled. */
  settle(costUsd: number): void;
  release(): void;
}

export interface ChargesOptions {
  metering: Pick<Metering, "admit" | "resume" | "record" | "written">;
  billing: Pick<Billing, "videoCostNanoUsd">;
}

const usageOf = (costUsd: number): FinalUsage => ({
  backend: "video",
  promptTokens: 0,
  completionTokens: 0,
  estimated: false,
  costUsd,
});

export class Charges {
  constructor(readonly options: ChargesOptions) {}

  async priceUsd(model: string, facts: ClipFacts): Promise<number> {
    return (await this.options.billing.videoCostNanoUsd(model, facts)) / NANO_PER_USD;
  }

  async admit({ costUsd, ...job }: JobCharge): Promise<JobHold> {
    return this.#holdOf(await this.options.metering.admit({ ...job, refId: null, bound: { costUsd } }));
  }

  async resume({ costUsd, ...job }: JobCharge): Promise<JobHold> {
    return this.#holdOf(await this.options.metering.resume({ ...job, refId: null, bound: { costUsd } }));
  }

  #holdOf(admission: Admission): JobHold {
    return {
      settle: (spentUsd) => {
        admission.settle(usageOf(spentUsd));
        this.options.metering.written();
      },
      release: () => admission.release(),
    };
  }

  /** As `settle` of a hold; harmless when it is called again with the same request id. */
  record({ costUsd, ...job }: JobCharge): void {
    const { metering } = this.options;
    metering.record({ ...job, refId: null }, usageOf(costUsd));
    metering.written();
  }
}
