import { fail, ServiceError } from "../../kernel/errors.ts";
import type { Billing } from "../billing/index.ts";
import type { Admission, FinalUsage, Metering } from "../metering/index.ts";
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

const usageOf = (costUsd: number): FinalUsage => ({
  backend: "video",
  promptTokens: 0,
  completionTokens: 0,
  estimated: false,
  costUsd,
});

const boundOf = ({ costUsd, ...job }: JobCharge) => ({ ...job, bound: { costUsd } });

const holdOf = (admission: Admission): JobHold => ({
  settle: (spentUsd) => admission.settle(usageOf(spentUsd)),
  release: () => admission.release(),
});

/** The room as the service has it: routed, priced and metered like everything else. */
export function createVideo({ routing, metering, billing, ...parts }: VideoParts): Video {
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
    admit: async (job) => holdOf(await metering.admit(boundOf(job))),
    resume: async (job) => holdOf(await metering.resume(boundOf(job))),
    record: ({ costUsd, ...job }) => metering.record(job, usageOf(costUsd)),
  });
}
