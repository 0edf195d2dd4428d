import { whenKnown } from "../../kernel/when-known.ts";
import type { Billing } from "../billing/index.ts";
import type { Conversations } from "../conversations/index.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { Realtime, type RealtimeOptions } from "./service.ts";

export interface RealtimeParts
  extends Pick<RealtimeOptions, "requests" | "events" | "clock" | "ids" | "log"> {
  routing: Routing;
  metering: Metering;
  billing: Pick<Billing, "limitsOf">;
  conversations: Conversations;
}

/** The room as the service has it: routed and metered like everything else. */
export function createRealtime({
  routing,
  metering,
  billing,
  conversations,
  ...parts
}: RealtimeParts): Realtime {
  return new Realtime({
    ...parts,
    conversations,
    route(requested) {
      const route = routing.choose({
        model: routing.aliases.resolve(requested),
        capability: "realtime",
      });
      return {
        backend: route.backend,
        model: route.model,
        succeeded: () => route.succeeded(),
        failed: (cause) => route.failed(cause),
        abandoned: () => route.abandoned(),
        suspect: (problem, requestId) => routing.suspect(route, problem, requestId),
      };
    },
    limitsOf: (model) => billing.limitsOf(model),
    admit({ actor, ...response }) {
      return whenKnown(metering.payerOf(actor), (payer) => metering.admit({ ...response, payer }));
    },
  });
}
