import { z } from "zod";
import { readJson } from "../../../../kernel/json.ts";
import { type AnyRoute, BODY_BYTES_MAX, defineRoute, raw } from "../../../../kernel/route.ts";
import { VERSION } from "../../../../kernel/version.ts";
import { Payload } from "../../request/payload.ts";
import { Given } from "../given.ts";
import { errorBody } from "./index.ts";
import { DETAILS, withoutTag } from "./models.ts";
import { embeddingsBody } from "./request.ts";

const SHOW_BYTES_MAX = 16 * 1024;
const FORM = { form: { errorBody }, isRequest: true };

const Details = z.object({
  parent_model: z.string(),
  format: z.string(),
  family: z.string(),
  families: z.array(z.string()),
  parameter_size: z.string(),
  quantization_level: z.string(),
});

export const ollamaEmbed: AnyRoute = defineRoute({
  method: "POST",
  path: "/api/embed",
  summary: "Vectors of texts, as Ollama's API has it",
  auth: "api_key",
  recorded: true,
  body: raw(
    z.looseObject({
      model: z.string(),
      input: z.union([z.string(), z.array(z.string())]),
      dimensions: z.int().optional(),
    }),
  ),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(
    z.object({
      model: z.string(),
      embeddings: z.array(z.array(z.number())),
      total_duration: z.int(),
      load_duration: z.int(),
      prompt_eval_count: z.int(),
    }),
  ),
  handler: (call) =>
    call.rooms.inference.embeddings(call, async (bytes) => {
      const { body, model } = Given.request(await readJson(bytes));
      return {
        payload: new Payload(embeddingsBody(body, withoutTag(model))),
        write: ({ data }, usage) => ({
          model,
          embeddings: data.map(({ embedding }) => embedding),
          total_duration: 0,
          load_duration: 0,
          prompt_eval_count: usage?.promptTokens ?? 0,
        }),
      };
    }),
  refuse: (error, call) => call.rooms.inference.refuse(error, call, FORM),
});

export const ollamaTags = defineRoute({
  method: "GET",
  path: "/api/tags",
  summary: "Models that can be called now, as Ollama's API lists them",
  auth: "public",
  response: z.object({
    models: z.array(
      z.object({
        name: z.string(),
        model: z.string(),
        modified_at: z.string(),
        size: z.int(),
        digest: z.string(),
        capabilities: z.array(z.string()),
        details: Details,
      }),
    ),
  }),
  handler: ({ rooms }) => ({
    models: rooms.inference.models.ollama().map(({ id, capabilities }) => ({
      name: id,
      model: id,
      modified_at: new Date(0).toISOString(),
      size: 0,
      digest: "",
      capabilities,
      details: DETAILS,
    })),
  }),
});

export const ollamaShow = defineRoute({
  method: "POST",
  path: "/api/show",
  summary: "One of these models: what it can do and how much it reads",
  auth: "api_key",
  outsideTierRate: true,
  body: z.looseObject({ model: z.string().max(256).optional(), name: z.string().max(256).optional() }),
  bodyBytesMax: SHOW_BYTES_MAX,
  response: z.object({
    modelfile: z.string(),
    parameters: z.string(),
    template: z.string(),
    details: Details,
    model_info: z.record(z.string(), z.unknown()),
    capabilities: z.array(z.string()),
    modified_at: z.string(),
  }),
  handler: ({ rooms, body }) => {
    const { capabilities, modelInfo } = rooms.inference.models.ollamaOne(body.model ?? body.name ?? "");
    return {
      modelfile: "",
      parameters: "",
      template: "{{ .Prompt }}",
      details: DETAILS,
      model_info: modelInfo,
      capabilities,
      modified_at: new Date(0).toISOString(),
    };
  },
  refuse: (error, call) => call.rooms.inference.refuse(error, call, { ...FORM, isRequest: false }),
});

export const ollamaVersion = defineRoute({
  method: "GET",
  path: "/api/version",
  summary: "The gateway's version, where Ollama's clients look for a version",
  auth: "public",
  response: z.object({ version: z.string() }),
  handler: () => ({ version: VERSION }),
});
