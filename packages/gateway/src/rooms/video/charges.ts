import type { Payer } from "../../kernel/payer.ts";
import type { Billing } from "../billing/index.ts";
import type { FinalUsage, Metering } from "../metering/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import type { ClipFacts } from "./clip-facts.ts";
import type { JobSummary } from "./store.ts";

export interface ChargesOptions {
  metering: Pick<Metering, "admit" | "resume" | "record" | "written">;
  billing: Pick<Billing, "videoCostNanoUsd">;
}

/** Under its id: a charge that is made again is harmless. */
export const chargeOf = ({ id, payer, model }: Pick<JobSummary, "id" | "payer" | "model">) => ({
  ...{ requestId: id, payer: JSON.parse(payer) as Payer, model, refId: null },
});

export const usageOf = (costUsd: number): FinalUsage => ({
  ...{ backend: "video", promptTokens: 0, completionTokens: 0, estimated: false, costUsd },
});

export const priceUsd = async ({ billing }: ChargesOptions, model: string, facts: ClipFacts) =>
  (await billing.videoCostNanoUsd(model, facts)) / NANO_PER_USD;
