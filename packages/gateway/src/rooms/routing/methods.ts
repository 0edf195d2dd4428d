import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { TARGETS_MAX } from "./model-routes.ts";

const Field = z.object({
  name: z
    .enum([
      "url",
      "name",
      "api_key",
      "models",
      "dialects",
      "auth",
      "limit_field",
      "id_prefix",
      "headers",
      "set",
      "drop",
      "fields",
      "tool_prices",
    ])
    .describe("Of `POST /api/admin/backends`"),
  label: z.string(),
  input: z.enum(["text", "password", "list", "members"]),
  choices: z.array(z.string()).optional(),
  required: z.boolean(),
  is_more: z.boolean().describe("For the few that need it"),
  placeholder: z.string().optional(),
  hint: z.string(),
});

export const types = defineMethod({
  name: "backends.types",
  summary: "What backends can be registered, and what a form asks for",
  auth: "jwt",
  result: z.object({
    default_type: z.string(),
    types: z.array(
      z.object({ type: z.string(), kind: z.string(), label: z.string(), fields: z.array(Field) }),
    ),
  }),
  handler: ({ rooms }) => rooms.routing.types(),
});

const MODEL_ID = z.string().trim().min(1).max(256);
const ADMIN = { auth: "admin", hint: "only administrators manage model routes" } as const;
const Target = z.object({
  model: MODEL_ID.describe("As a backend lists it; aliases and other routes are not followed"),
  backend: z.string().trim().min(1).max(64).nullish().describe("Only this backend, or backends of this kind"),
  order: z.int().min(1).max(100).default(1).describe("Lower ones are tried first"),
  weight: z.int().min(1).max(1_000).default(1).describe("Share of the calls among those of the same order"),
});
const RouteSettings = z.object({
  name: MODEL_ID.describe("The model id that clients call"),
  targets: z.array(Target).min(1).max(TARGETS_MAX),
  begin_within_seconds: z
    .number()
    .min(0.1)
    .max(600)
    .nullish()
    .describe("A target that has not begun to answer by then gives way to the next"),
});

const ListedTarget = Target.extend({
  backends: z
    .array(
      z.object({ name: z.string(), serving: z.boolean().describe("Healthy, and its circuit is closed") }),
    )
    .describe("Backends that list the model; none: a call passes this target over"),
});

export const listRoutes = defineMethod({
  name: "routes.list",
  summary: "Model routes: names that several targets serve, and which backends stand behind each target now",
  ...ADMIN,
  result: z.array(RouteSettings.extend({ targets: z.array(ListedTarget) })),
  handler: ({ rooms: { routing } }) =>
    routing.routes.list().map(({ name, targets, beginWithinMs }) => ({
      name,
      targets: targets.map((target) => ({ ...target, backends: routing.router.backendsOf(target) })),
      begin_within_seconds: beginWithinMs === null ? null : beginWithinMs / 1000,
    })),
});

export const setRoute = defineMethod({
  name: "routes.set",
  summary: "Let several targets serve one name, with order and weights; replaces the route of that name",
  ...ADMIN,
  params: RouteSettings,
  handler: ({ params: { name, targets, begin_within_seconds: seconds }, rooms }) =>
    rooms.routing.routes.set({
      name,
      targets: targets.map((target) => ({ ...target, backend: target.backend ?? null })),
      beginWithinMs: seconds == null ? null : Math.round(seconds * 1000),
    }),
});

export const deleteRoute = defineMethod({
  name: "routes.delete",
  summary: "Delete a model route",
  ...ADMIN,
  params: z.object({ name: MODEL_ID }),
  handler: ({ params, rooms }) => rooms.routing.routes.remove(params.name),
});
export * from "./manage-methods.ts";
