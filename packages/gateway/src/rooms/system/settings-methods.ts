import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";

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
