import type { Conversations } from "../conversations/index.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { Realtime, type RealtimeOptions } from "./service.ts";

export interface RealtimeParts
  extends Pick<RealtimeOptions, "requests" | "events" | "clock" | "ids" | "log"> {
  routing: Routing;
  metering: Metering;
  conversations: Conversations;
}

/** Of a model whose limit is not known. */
const OUTPUT_TOKENS_MAX = 8_192;

/** The room as the service has it: routed and metered like everything else. */
export function createRealtime({ routing, metering, conversations, ...parts }: RealtimeParts): Realtime {
  return new Realtime({
    ...parts,
    conversations,
    route: (model) => routing.choose({ model: routing.aliases.resolve(model), capability: "realtime" }),
    outputTokensMax: () => OUTPUT_TOKENS_MAX,
    admit({ actor, ...response }) {
      const payer = metering.payerOf(actor);
      return payer instanceof Promise
        ? payer.then((known) => metering.admit({ ...response, payer: known }))
        : metering.admit({ ...response, payer });
    },
  });
}
