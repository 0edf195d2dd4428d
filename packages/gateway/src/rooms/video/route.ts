import type { Backend } from "../../backends/contract.ts";
import { fail, ServiceError } from "../../kernel/errors.ts";
import type { RouteRequest, Routing } from "../routing/index.ts";

/** A healthy video backend that serves the model; throws when there is none. Nothing is sent now. */
export function chooseVideoBackend(
  routing: Pick<Routing, "aliases" | "router">,
  requested: string,
  asked: Pick<RouteRequest, "provider" | "payer">,
): { backend: Backend; model: string; reason: string } {
  const model = routing.aliases.resolve(requested);
  try {
    return routing.router.foresee({ ...asked, model, capability: "video" });
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return fail(
      "no_video_backend",
      `No healthy video backend serves the model ${model}; GET /v1/models lists what is served`,
    );
  }
}
