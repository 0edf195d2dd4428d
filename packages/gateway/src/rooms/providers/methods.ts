import { z } from "zod";
import { AUTHS, DIALECTS } from "../../backends/contract.ts";
import { defineMethod } from "../../kernel/method.ts";
import { PROVIDER_CARDS } from "./service.ts";

const ProviderId = z.string().trim().min(1).max(64);
const Name = z.string().trim().min(1).max(80);
const Description = z.string().max(500);
const Domain = z.string().trim().max(253);
const ADMIN = { auth: "admin", hint: "only administrators manage provider entries" } as const;

export const list = defineMethod({
  name: "providers.list",
  summary: "Display metadata of providers; no credentials",
  auth: "public",
  result: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      description: z.string(),
      website_domain: z.string(),
      is_official: z.boolean(),
      is_operator: z.boolean(),
    }),
  ),
  handler: ({ rooms }) => rooms.providers.list(),
});

export const addresses = defineMethod({
  name: "providers.addresses",
  summary: "Where the APIs of the built-in providers are, for the form that registers a backend",
  ...ADMIN,
  result: z.array(
    z.object({
      provider_id: z.string(),
      serves: z.string(),
      type: z.string().describe("Of backends.add"),
      url: z.string().describe("What stands in braces is the operator's own, such as the region"),
      needs_key: z.boolean(),
      needs_models: z.boolean().describe("Its listing does not say what can be called"),
      dialects: z.array(z.enum(DIALECTS)).describe("None: not a chat API"),
      auth: z.enum(AUTHS).nullable(),
    }),
  ),
  handler: () =>
    PROVIDER_CARDS.flatMap(({ id, apis }) =>
      apis.map(({ needs_models = false, dialects = [], auth = null, ...api }) => ({
        ...{ provider_id: id, needs_models, dialects, auth, ...api },
      })),
    ),
});

export const add = defineMethod({
  name: "providers.add",
  summary: "Add a provider entry",
  ...ADMIN,
  params: z.object({
    id: ProviderId,
    name: Name,
    description: Description.optional(),
    website_domain: Domain.optional(),
  }),
  handler: ({ params, rooms }) => rooms.providers.add(params),
});

export const update = defineMethod({
  name: "providers.update",
  summary: "Change a provider entry; only the given fields change",
  ...ADMIN,
  params: z.object({
    provider_id: ProviderId,
    name: Name.optional(),
    description: Description.optional(),
    website_domain: Domain.optional(),
  }),
  handler: ({ params: { provider_id, ...change }, rooms }) => rooms.providers.update(provider_id, change),
});

export const remove = defineMethod({
  name: "providers.remove",
  summary: "Remove a provider entry",
  ...ADMIN,
  params: z.object({ provider_id: ProviderId }),
  handler: ({ params, rooms }) => rooms.providers.remove(params.provider_id),
});

export const test = defineMethod({
  name: "providers.test",
  summary: "Answers that the connection test does not exist; the contract defines it so",
  ...ADMIN,
  result: z.object({ ok: z.literal(true), message: z.string() }),
  handler: () => ({
    ok: true as const,
    message: "providers.test is not implemented; see the health of a backend instead",
  }),
});
