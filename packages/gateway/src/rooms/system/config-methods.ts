import { z } from "zod";
import type { Actor, Rooms } from "../../kernel/context.ts";
import { ServiceError } from "../../kernel/errors.ts";
import { isObject } from "../../kernel/json.ts";
import { defineMethod } from "../../kernel/method.ts";
import { nextTurn } from "../../kernel/turns.ts";
import { inspect, type Problem } from "../../kernel/validate.ts";
import { methods as billing } from "../billing/index.ts";
import { methods as groups } from "../groups/index.ts";
import { methods as routing } from "../routing/index.ts";

const hint = "the service's settings are for administrators";

export const listSettings = defineMethod({
  name: "settings.list",
  summary: "The settings that can be changed while the service runs, and where each value comes from",
  auth: "admin",
  hint,
  result: z.array(
    z.object({
      name: z.string().describe("The variable that sets it in the environment"),
      help: z.string(),
      value: z.string().nullable(),
      default: z.string().describe("In words"),
      source: z
        .enum(["environment", "console"])
        .nullable()
        .describe("Null: its default. What the environment sets cannot be changed here"),
    }),
  ),
  handler: ({ rooms }) => rooms.system.settings.list(),
});

export const updateSetting = defineMethod({
  name: "settings.update",
  summary: "Change a setting at once, on every instance",
  auth: "admin",
  hint,
  params: z.object({
    name: z.string().max(64).describe("As settings.list has it"),
    value: z
      .string('must be text, such as "30"')
      .max(256)
      .nullable()
      .describe("As the environment would have it; null: the default"),
  }),
  handler: async ({ params: { name, value }, rooms, before }) => {
    const tiers = rooms.billing.tiers.all.map((tier) => tier.name);
    before.value = await rooms.system.settings.update(name, value, tiers);
  },
});

type Entry = Record<string, unknown>;

const ModelIds = z.array(groups.allowModels.params.shape.model_ids.element).max(200).optional();
const GroupEntry = groups.update.params
  .omit({ group_id: true })
  .required({ name: true })
  .extend({ allowed_models: ModelIds, denied_models: ModelIds });

/** A section of the configuration: how entries are checked and identified, and whether they replace existing ones. */
const SECTIONS = {
  backends: { entry: routing.updateBackend.params.omit({ seen: true }), key: "name", replaces: false },
  routes: { entry: routing.setRoute.params, key: "name", replaces: true },
  prices: { entry: billing.setPrice.params, key: "model", replaces: true },
  video_prices: { entry: billing.setVideoPrice.params, key: "model", replaces: true },
  tiers: { entry: billing.setTier.params, key: "name", replaces: true },
  groups: { entry: GroupEntry, key: "name", replaces: false },
  settings: { entry: updateSetting.params, key: "name", replaces: true },
} satisfies Record<string, { entry: z.ZodType; key: string; replaces: boolean }>;
type Section = keyof typeof SECTIONS;

const isSection = (name: string): name is Section => Object.hasOwn(SECTIONS, name);
/** Prices are stored in lower case. */
const keyIn = (section: Section, entry: Entry): string =>
  section === "prices" ? String(entry.model).toLowerCase() : String(entry[SECTIONS[section].key]);

async function current({ routing, billing: bills, groups: all, system }: Rooms, actor: Actor) {
  const found = (await all.list(null, {})).map(async (group) => {
    const { id, name, description, rpm_ceiling, monthly_refill, ...more } = groups.toGroup(group, undefined);
    const { member_budget_usd, enforce_model_allowlist } = more;
    const { allowed, denied } = await all.models({ actor, groupId: id, method: "config.check" });
    const limits = { rpm_ceiling, monthly_refill, member_budget_usd };
    const rules = { enforce_model_allowlist, allowed_models: allowed, denied_models: denied };
    return { id, name, description, ...limits, ...rules };
  });
  return {
    backends: await routing.configured(),
    routes: routing.routes.list().map(({ beginWithinMs, ...route }) => ({
      ...route,
      begin_within_seconds: beginWithinMs === null ? null : beginWithinMs / 1000,
    })),
    prices: (await bills.store.modelPrices()).map(billing.priceShown),
    video_prices: (await bills.store.videoPrices()).map((price) => ({ ...price })),
    tiers: bills.tiers.all.map((tier) => ({ ...tier })),
    groups: await Promise.all(found),
    settings: system.settings
      .list()
      .filter(({ source }) => source === "console")
      .map(({ name, value }) => ({ name, value })),
  } satisfies Record<Section, Entry[]>;
}

/** Compares values: null equals absent, and the order of members and of lists of names does not matter. */
const comparable = (value: unknown): unknown => {
  if (Array.isArray(value) && value.every((each) => typeof each === "string"))
    return [...new Set(value)].sort();
  return JSON.parse(JSON.stringify(value ?? null, (_, each) => each ?? undefined) ?? "null");
};

const differ = (section: Section, now: Entry, wanted: Entry): string[] => {
  const { key, replaces } = SECTIONS[section];
  return Object.keys(replaces ? { ...now, ...wanted } : wanted).filter(
    (field) => field !== key && !Bun.deepEquals(comparable(now[field]), comparable(wanted[field])),
  );
};

/** Checks of a room beyond its schema. */
const refusal = (error: unknown, entry: Entry, key: string): Problem => {
  if (!(error instanceof ServiceError)) throw error;
  const [field] = (error.data?.fields as string[] | undefined) ?? [];
  const path = field === undefined ? [] : [field in entry ? field : key];
  return { path, message: error.message };
};

export const checkConfig = defineMethod({
  name: "config.check",
  summary: "The configuration, what another would change, and what is wrong with that; nothing is written",
  auth: "admin",
  hint: "the configuration is for administrators",
  params: z.object({
    configuration: z
      .record(z.string().max(64), z.array(z.unknown()).max(1_000))
      .describe("Entries by section, as `model-gateway apply` takes them, with their secrets"),
  }),
  result: z.object({
    present: z
      .record(z.string(), z.array(z.record(z.string(), z.unknown())))
      .describe("What there is; `secrets` of a backend names the fields whose values are not shown"),
    problems: z.array(
      z.object({
        path: z.array(z.union([z.string(), z.int()])).describe("Section, number of the entry, field"),
        message: z.string(),
      }),
    ),
    changes: z.array(
      z.object({
        section: z.string(),
        at: z.int().describe("Number of the entry"),
        fields: z.array(z.string()).describe("Those that would change"),
      }),
    ),
  }),
  handler: async ({ params, actor, rooms }) => {
    const present: Record<Section, Entry[]> = await current(rooms, actor);
    const ofBackend = await rooms.routing.changes();
    const changesIn = (section: Section, before: Entry = {}, wanted: Entry): string[] => {
      if (section === "settings") {
        const tiers = [...present.tiers, ...(params.configuration.tiers ?? [])].filter(isObject);
        const { name, value } = wanted as z.infer<typeof updateSetting.params>;
        rooms.system.settings.require(name, value, [...new Set(tiers.map((tier) => String(tier.name)))]);
      }
      if (section !== "backends") return differ(section, before, wanted);
      const { api_key: apiKey, ...fields } = wanted as z.infer<typeof SECTIONS.backends.entry>;
      return ofBackend({ ...fields, apiKey });
    };
    const problems: Problem[] = [];
    const changes: { section: string; at: number; fields: string[] }[] = [];
    for (const [section, entries] of Object.entries(params.configuration)) {
      if (!isSection(section)) {
        const message = `is not a section; there are ${Object.keys(SECTIONS).join(", ")}`;
        problems.push({ path: [section], message });
        continue;
      }
      const { entry: schema, key } = SECTIONS[section];
      const names = new Set<string>();
      for (const [at, given] of entries.entries()) {
        await nextTurn();
        const report = ({ path, message }: Problem) =>
          problems.push({ path: [section, at, ...path], message });
        const { value, problems: found } = inspect<z.ZodType>(schema, given);
        for (const problem of found ?? []) report(problem);
        if (!isObject(value)) continue;
        const name = keyIn(section, value);
        const same = present[section].filter((each) => keyIn(section, each) === name);
        if (names.has(name)) report({ path: [key], message: `${name} stands here twice` });
        if (same.length > 1)
          report({ path: [key], message: `${same.length} are called ${name}; rename all but one` });
        names.add(name);
        try {
          const fields = changesIn(section, same[0], value);
          // A setting at its default is not listed as present.
          const isNew = !same[0] && value.value !== null;
          if (fields.length > 0 || isNew) changes.push({ section, at, fields });
        } catch (error) {
          report(refusal(error, value, key));
        }
      }
    }
    return { present, problems, changes };
  },
});
