import { z } from "zod";
import { defineMethod, NoParams } from "../../kernel/method.ts";

const Field = z.object({
  name: z.enum(["url", "name", "api_key", "models"]).describe("Of `POST /api/admin/backends`"),
  label: z.string(),
  input: z.enum(["text", "password", "list"]),
  required: z.boolean(),
  placeholder: z.string().optional(),
  hint: z.string(),
});

export const types = defineMethod({
  name: "backends.types",
  summary: "What backends can be registered, and what a form asks for",
  auth: "jwt",
  params: NoParams,
  result: z.object({
    default_type: z.string(),
    types: z.array(
      z.object({ type: z.string(), kind: z.string(), label: z.string(), fields: z.array(Field) }),
    ),
  }),
  handler: ({ rooms }) => rooms.routing.types(),
});

export * from "./manage-methods.ts";
