import { z } from "zod";
import type { CapabilityName } from "../../backends/contract.ts";
import { defineMethod } from "../../kernel/method.ts";
import { recordOf } from "../../kernel/validate.ts";
import {
  type Price,
  PriceParts,
  requireRates,
  Tokens,
  UNIT_RATES,
  UsdEach,
  UsdPerImage,
  UsdPerMillion,
} from "./price-schema.ts";
import { isPerUnit } from "./pricing.ts";
import { VideoMode, VideoPrice } from "./video-cost.ts";

const ADMIN = { auth: "admin", hint: "prices and tiers are for administrators" } as const;
const Money = z.number().min(0).max(1_000_000);
const Quota = z.number().nullable().describe("Null: unlimited");

const Window = z.object({
  quota_cost_usd: z.number(),
  quota_tokens: z.int(),
  remaining: z.object({ cost_usd: Quota, tokens: Quota }),
  exceeded: z.boolean(),
});

export const Tier = z.object({
  name: z.string(),
  monthly_usd_quota: Quota,
  monthly_token_quota: Quota,
  rpm: z.int().describe("Requests a minute that each key may make"),
});

export const plan = defineMethod({
  name: "billing.plan",
  summary: "Your tier, what you used this month (UTC) and what is left of it",
  auth: "jwt",
  result: z.object({
    tiers: z.array(Tier),
    current_tier: z.string(),
    usage: z.object({
      cost_usd: z.number(),
      tokens: z.int(),
      requests: z.int(),
      quota_cost_usd: z.number().describe("The part of cost_usd that points did not pay"),
      quota_tokens: z.int().describe("The part of tokens that points did not pay"),
    }),
    remaining: z.object({ cost_usd: Quota, tokens: Quota }).describe("For what you do signed in"),
    quota_exceeded: z.boolean().describe("Nothing is left for keys either"),
    windows: z
      .object({
        signed_in: Window.describe("Everything counts; limits what you do signed in"),
        keys: Window.describe("All keys together; limits each of them"),
        projects: z
          .array(z.object({ project: z.string(), ...Window.shape }))
          .describe("The keys of one project"),
      })
      .describe("Each may use the whole quota of the tier"),
    points_balance: z.int(),
    debt_points: z
      .int()
      .describe("Owed on the wallet: while it is not 0, nothing is admitted on points or quota"),
    points_per_usd: z.int(),
  }),
  handler: ({ actor, rooms }) => rooms.billing.plan(actor),
});

export const setPlan = defineMethod({
  name: "billing.plan.set",
  summary: "Put an account on a tier; its limits change at once",
  auth: "admin_token",
  params: z.object({ user_email: z.string().trim().toLowerCase().min(1).max(254), tier: z.string() }),
  handler: ({ params, rooms }) => rooms.billing.setPlan(params.user_email, params.tier),
});

export const getVideoPricing = defineMethod({
  name: "billing.video.pricing.get",
  summary: "What video models cost; one without a row costs 0.005 USD a second",
  auth: "jwt",
  result: z.object({ pricing: z.array(VideoPrice) }),
  handler: async ({ rooms }) => ({ pricing: await rooms.billing.store.videoPrices() }),
});

const Coefficients = recordOf(
  100,
  z.string().regex(/^(\*|[1-9]\d{0,5})$/, "keys are the short side in pixels, or *"),
  z.number().min(0).max(1_000_000),
);

const VideoPriceGiven = z.object({
  model: z.string().trim().min(1).max(128),
  mode: VideoMode.default("per_second_resolution"),
  base_price: Money.default(0),
  price_per_second: Money.default(0),
  price_per_frame: Money.default(0),
  resolution_coeff: Coefficients.default({ "*": 1 }),
  currency: z
    .string()
    .trim()
    .min(1)
    .max(8)
    .default("USD")
    .describe("Another one than USD needs a rate in the pricing file (usd_per); until then jobs are refused"),
  enabled: z
    .boolean()
    .default(true)
    .describe(
      "False: the row is kept but not used, and the model costs what one without a row costs, 0.005 USD a second. It does not switch the model off",
    ),
});

export const setVideoPricing = defineMethod({
  name: "billing.video.pricing.set",
  summary: "Set a video model's price; replaces the model's row",
  auth: "admin_token",
  params: VideoPriceGiven,
  handler: ({ params, rooms }) => rooms.billing.store.setVideoPrice(params),
});

export const setVideoPrice = defineMethod({
  name: "billing.prices.video.set",
  summary: "Set a video model's price, as a signed-in administrator",
  ...ADMIN,
  params: VideoPriceGiven,
  handler: ({ params, rooms }) => rooms.billing.store.setVideoPrice(params),
});

const UNIT_PRICES = {
  per_call_usd: UsdEach.optional().describe("For each request, where nothing else applies"),
  per_image_usd: UsdPerImage.optional().describe(
    "For each image; or prices by quality, size or both: hd, 1024x1024, hd/1024x1024",
  ),
  per_second_usd: UsdEach.optional().describe("For each second of sound that is transcribed"),
  per_million_characters_usd: UsdPerMillion.optional().describe("For text that is spoken"),
};

const ModelId = z.string().trim().min(1).max(256);

export const listPrices = defineMethod({
  name: "billing.prices.list",
  summary: "What each model that can be called now costs, and each pattern, and where that price comes from",
  ...ADMIN,
  params: z.object({
    models: z
      .array(ModelId)
      .max(1_000)
      .optional()
      .describe("Of these instead, such as the models of a server that is not registered yet"),
    type: z.string().max(64).optional().describe("With `models`: the type of that server"),
  }),
  result: z.array(
    z.object({
      model: z.string(),
      capabilities: z.array(z.string()).describe("What the backends that list it can do, as far as is known"),
      input_usd: z.number().nullable().describe("Per million tokens; null: no price is known"),
      output_usd: z.number().nullable(),
      parts: PriceParts.describe("The rest of its price by the token, per million"),
      ...UNIT_PRICES,
      unpriced: z
        .boolean()
        .describe("No price is known for what it does; a video model without a row costs 0.005 USD a second"),
      not_billed: z.boolean().describe("It runs on own hardware, and nobody has set a price for it"),
      source: z.enum(["own", "list"]).nullable().describe("own: set by an administrator"),
    }),
  ),
  handler: async ({ params, rooms: { billing, routing } }) => {
    const filmed = new Set(
      (await billing.store.videoPrices()).flatMap(({ model, enabled }) => (enabled ? [model] : [])),
    );
    const models = params.models ?? [
      ...routing.router.routableModels().map(({ id }) => id),
      ...billing.pricePatterns,
    ];
    return models.map((model) => {
      const isOwn = params.type === undefined ? routing.router.isOwn(model) : routing.isOwnType(params.type);
      const { input, output } = billing.pricing.priceOf(model, isOwn);
      const capabilities = routing.router.capabilitiesOf(model);
      const units = billing.pricing.unitRatesOf(model, isOwn);
      const isPriced = input !== null || isPerUnit(units) || filmed.has(model);
      const isMissing = isVideoOnly(capabilities) ? !filmed.has(model) : !isPriced;
      return {
        model,
        capabilities,
        input_usd: input,
        output_usd: output,
        parts: billing.pricing.partsOf(model, isOwn),
        per_call_usd: units.per_call,
        per_image_usd: units.per_image,
        per_second_usd: units.per_second,
        per_million_characters_usd: units.per_million_characters,
        unpriced: isMissing && !isOwn,
        not_billed: isMissing && isOwn,
        source: billing.pricing.isSetByAdministrators(model)
          ? ("own" as const)
          : isPriced
            ? ("list" as const)
            : null,
      };
    });
  },
});

/** Such a model has a video price only. */
const isVideoOnly = (capabilities: readonly CapabilityName[]): boolean =>
  capabilities.length > 0 && capabilities.every((capability) => capability === "video");

const PriceGiven = z
  .object({
    model: ModelId.describe(
      "Its whole id; or how ids begin, with a star: `openai/*`, for all that have no price of their own",
    ),
    input_usd: Money.optional().describe("Per million tokens of the prompt; goes with output_usd"),
    output_usd: Money.optional().describe("Per million tokens of the answer"),
    parts: PriceParts.optional().describe("What else tokens cost, per million; goes with input_usd"),
    ...UNIT_PRICES,
    max_output_tokens: Tokens.optional().describe("The most tokens that one answer may have"),
    context_window: Tokens.optional().describe("The most tokens of prompt and answer together"),
  })
  .superRefine(
    requireRates("_usd", "give it with `output_usd`, or a price by another unit, such as `per_image_usd`"),
  );

type PriceGiven = z.infer<typeof PriceGiven>;
const IN_USD = ["input", "output", ...UNIT_RATES] as const;

const priceGiven = ({ model, parts, max_output_tokens, context_window, ...usd }: PriceGiven): Price => ({
  match: model,
  ...parts,
  ...Object.fromEntries(IN_USD.map((name) => [name, usd[`${name}_usd`]])),
  max_output_tokens,
  context_window,
});

/** The reverse of `priceGiven`. */
export function priceShown({ match, max_output_tokens, context_window, ...price }: Price): PriceGiven {
  const usd = Object.fromEntries(IN_USD.map((name) => [`${name}_usd`, price[name]]));
  for (const name of IN_USD) delete price[name];
  const parts = Object.keys(price).length > 0 ? { parts: price } : {};
  return { model: match, ...usd, ...parts, max_output_tokens, context_window };
}

export const setPrice = defineMethod({
  name: "billing.prices.set",
  summary:
    "Set what a model costs, by the token or another unit; goes before all other prices and replaces the last",
  ...ADMIN,
  params: PriceGiven,
  handler: ({ params, rooms }) => rooms.billing.setModelPrices([priceGiven(params)]),
});

export const importPrices = defineMethod({
  name: "billing.prices.import",
  summary: "Set what many models cost, all or none of them; as billing.prices.set does for one",
  ...ADMIN,
  params: z.object({ prices: z.array(PriceGiven).min(1).max(500) }),
  result: z.object({ written: z.int() }),
  handler: async ({ params: { prices }, rooms }) => {
    await rooms.billing.setModelPrices(prices.map(priceGiven));
    return { written: prices.length };
  },
});

export const removePrice = defineMethod({
  name: "billing.prices.remove",
  summary: "Forget a price that an administrator set; the built-in one is in force again, if there is one",
  ...ADMIN,
  params: z.object({ model: ModelId }),
  result: z.object({ removed: z.boolean() }),
  handler: async ({ params, rooms }) => ({ removed: await rooms.billing.removeModelPrice(params.model) }),
});

export const setTier = defineMethod({
  name: "billing.tiers.set",
  summary: "Add a tier or change the limits of one; they are in force at once",
  ...ADMIN,
  params: z.object({
    name: z.string().trim().min(1).max(64),
    monthly_usd_quota: Money.nullable().describe("Null: unlimited"),
    monthly_token_quota: z.int().min(0).max(1_000_000_000_000).nullable().describe("Null: unlimited"),
    rpm: z.int().min(1).max(1_000_000).describe("Requests a minute that each key may make"),
  }),
  handler: ({ params, rooms, before }) => {
    const { name, ...limits } = rooms.billing.tier(params.name);
    if (name === params.name) Object.assign(before, limits);
    return rooms.billing.setTierLimits(params);
  },
});
