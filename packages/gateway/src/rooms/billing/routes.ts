import { z } from "zod";
import { defineRoute } from "../../kernel/route.ts";

const Usd = z.number().describe("USD per million tokens");

export const prices = defineRoute({
  method: "GET",
  path: "/api/prices",
  summary: "What the models that can be called now cost; null where no price is known",
  auth: "public",
  response: z.object({
    prices: z.array(z.object({ model: z.string(), input: Usd.nullable(), output: Usd.nullable() })),
  }),
  handler: ({ rooms }) => ({
    prices: rooms.billing.pricesOf(rooms.routing.routableModels().map(({ id }) => id)),
  }),
});
