import { type ErrorName, fail, ServiceError } from "../../kernel/errors.ts";
import type { Billing } from "../billing/index.ts";
import type { FinalUsage, Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import type { JobHold } from "./owned-jobs.ts";
import { type JobCharge, Video, type VideoOptions } from "./service.ts";

export interface VideoParts
  extends Pick<VideoOptions, "db" | "bus" | "events" | "clock" | "ids" | "log" | "pollMs" | "tickMs"> {
  routing: Routing;
  metering: Metering;
  billing: Billing;
}

const NANO_PER_USD = 1e9;
const REFUSALS: ReadonlySet<ErrorName> = new Set(["payment_required", "quota_exceeded", "unavailable"]);

const usageOf = (costUsd: number): FinalUsage => ({
  backend: "video",
  promptTokens: 0,
  completionTokens: 0,
  estimated: false,
  costUsd,
});

/** The room as the service has it: routed, priced and metered like everything else. */
export function createVideo({ routing, metering, billing, ...parts }: VideoParts): Video {
  const admit = async ({ costUsd, ...job }: JobCharge): Promise<JobHold> => {
    const admission = await metering.admit({ ...job, bound: { costUsd } });
    return {
      settle: (spentUsd) => admission.settle(usageOf(spentUsd)),
      release: () => admission.release(),
    };
  };
  return new Video({
    ...parts,
    route(requested, provider) {
      const model = routing.aliases.resolve(requested);
      try {
        const route = routing.choose({ model, capability: "video", provider });
        // Nothing is sent now: the job's own steps say how the backend does.
        route.abandoned();
        return { backend: route.backend, model: route.model };
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        fail(
          "no_video_backend",
          `No healthy video backend serves the model ${model}; GET /v1/models lists what is served`,
        );
      }
    },
    backendNamed: (name) => routing.backendNamed(name),
    priceUsd: async (model, facts) => (await billing.videoCostNanoUsd(model, facts)) / NANO_PER_USD,
    admit,
    async hold(bound) {
      try {
        return await admit(bound);
      } catch (error) {
        if (error instanceof ServiceError && REFUSALS.has(error.kind)) return null;
        throw error;
      }
    },
    record: ({ costUsd, ...job }) => metering.record(job, usageOf(costUsd)),
  });
}
