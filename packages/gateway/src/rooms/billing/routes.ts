import { z } from "zod";
import { defineRoute } from "../../kernel/route.ts";

const Usd = z.number().describe("USD per million tokens");

export const prices = defineRoute({
  method: "GET",
  path: "/api/prices",
  summary:
    "What the models that can be called now cost, a route like its first target; null: no price is known",
  auth: "public",
  response: z.object({
    prices: z.array(
      z.object({
        model: z.string(),
        input: Usd.nullable(),
        output: Usd.nullable(),
        not_billed: z.boolean().describe("It runs on own hardware, and nobody has set a price for it"),
      }),
    ),
  }),
  handler: ({ rooms: { billing, routing } }) => ({
    prices: routing.callableModels().map(({ id }) => {
      const model = routing.routes.targetsOf(id)?.[0]?.model ?? id;
      const isOwn = routing.router.isOwn(model);
      const price = billing.pricing.priceOf(model, isOwn);
      return { model: id, ...price, not_billed: isOwn && price.input === null };
    }),
  }),
});
