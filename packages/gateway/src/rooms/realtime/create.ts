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

/** The room as the service has it: routed and metered like everything else. */
export function createRealtime({ routing, metering, conversations, ...parts }: RealtimeParts): Realtime {
  return new Realtime({
    ...parts,
    conversations,
    route: (model) => routing.choose({ model: routing.aliases.resolve(model), capability: "realtime" }),
    async checkQuota(actor, model, requestId) {
      const payer = await metering.payerOf(actor);
      // Something rather than nothing, or points would not be asked whether they can pay.
      const bound = { promptTokens: 1, outputTokensMax: 1, outputTokensMin: 1 };
      const admission = await metering.admit({ requestId, payer, model, bound, refId: null });
      // Each response is recorded by itself; the session as such costs nothing.
      admission.release();
    },
    async record({ requestId, actor, model, promptTokens, completionTokens, refId }) {
      const payer = await metering.payerOf(actor);
      const usage = { backend: "realtime", promptTokens, completionTokens, estimated: false };
      metering.record({ requestId, payer, model, refId }, usage);
    },
  });
}
