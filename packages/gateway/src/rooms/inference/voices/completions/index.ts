import { z } from "zod";
import { TEXT_FORM } from "../../call/answer-shape.ts";
import { Payload } from "../../request/payload.ts";
import { Usage } from "../documented.ts";
import type { Voice } from "../voice.ts";

const Choice = z.looseObject({
  index: z.int(),
  text: z.string(),
  finish_reason: z.string().nullable(),
  logprobs: z.looseObject({}).nullish(),
});

const Completion = z.looseObject({
  id: z.string(),
  object: z.literal("text_completion"),
  created: z.int(),
  model: z.string(),
  choices: z.array(Choice),
  usage: Usage.nullish(),
});

/** Text completions, for base models and for editors that complete code. */
export const completions: Voice = {
  routes: {
    completions: {
      path: "/v1/completions",
      summary: "A text that goes on from a prompt, as a whole or as an event stream that ends with [DONE]",
      body: z.looseObject({
        model: z.string().describe("Id from GET /v1/models, or an alias"),
        prompt: z.union([z.string(), z.array(z.unknown())]).describe("Text, texts, or token numbers"),
        suffix: z.string().nullish().describe("What comes after the text that is asked for"),
        max_tokens: z.int().nullish(),
        n: z.int().nullish(),
        stream: z.boolean().nullish().describe("True: the answer is an event stream"),
        provider: z.string().optional().describe("Only this backend, or backends of this kind"),
      }),
      response: Completion,
      events: Completion,
    },
  },
  read: async (body) => ({ payload: await Payload.read(body), form: TEXT_FORM }),
};
