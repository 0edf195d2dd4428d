import type { Backend } from "../../backends/contract.ts";
import { fail, ServiceError } from "../../kernel/errors.ts";
import type { Routing } from "../routing/index.ts";

/** A healthy video backend that serves the model; throws when there is none. */
export function chooseVideoBackend(
  routing: Pick<Routing, "aliases" | "choose">,
  requested: string,
  provider?: string,
): { backend: Backend; model: string; reason: string } {
  const model = routing.aliases.resolve(requested);
  try {
    const route = routing.choose({ model, capability: "video", provider });
    // Nothing is sent now: the job's own steps report the backend's health.
    route.abandoned();
    return { backend: route.backend, model: route.model, reason: route.reason };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return fail(
      "no_video_backend",
      `No healthy video backend serves the model ${model}; GET /v1/models lists what is served`,
    );
  }
}
