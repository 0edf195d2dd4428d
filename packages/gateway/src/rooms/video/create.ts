import { fail, ServiceError } from "../../kernel/errors.ts";
import type { Billing } from "../billing/index.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { Video, type VideoOptions } from "./service.ts";

export interface VideoParts
  extends Pick<VideoOptions, "db" | "bus" | "events" | "clock" | "ids" | "log" | "pollMs" | "tickMs"> {
  routing: Routing;
  metering: Metering;
  billing: Billing;
}

const NANO_PER_USD = 1e9;

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
    async priceUsd(model, { durationSeconds, width = 0, height = 0, frames = 0 }) {
      return (
        (await billing.videoCostNanoUsd(model, { durationSeconds, width, height, frames })) / NANO_PER_USD
      );
    },
    async admit({ requestId, payer, model, costUsd, refId }) {
      const admission = await metering.admit({ requestId, payer, model, bound: { costUsd }, refId });
      return () => admission.release();
    },
    record({ requestId, payer, model, costUsd, refId }) {
      const usage = { backend: "video", promptTokens: 0, completionTokens: 0, estimated: false, costUsd };
      metering.record({ requestId, payer, model, refId }, usage);
    },
  });
}
