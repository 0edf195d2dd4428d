import { z } from "zod";
import { ObjectPayload } from "../../request/object-payload.ts";
import { parseBody } from "../chat-body.ts";
import { idToken, type Voice } from "../voice.ts";
import { chatBodyOfResponses } from "./request.ts";
import { ResponseSpeaker } from "./speaker.ts";

/** Names what could not be passed on, so that it is not dropped silently. */
const DROPPED_HEADER = "x-service-dropped";
const headerSafe = (name: string): string => name.replace(/[^\w.-]/g, "").slice(0, 64);

/** OpenAI's Responses API. */
export const responses: Voice = {
  routes: {
    responses: {
      path: "/v1/responses",
      summary: "OpenAI Responses API over the chat path, streaming or not; nothing is stored",
      body: z.looseObject({
        model: z.string(),
        input: z.union([z.string(), z.array(z.looseObject({}))]),
        instructions: z.string().nullish(),
        stream: z.boolean().nullish(),
        max_output_tokens: z.int().nullish(),
        tools: z.array(z.looseObject({ type: z.string() })).nullish(),
      }),
      response: z.looseObject({ id: z.string(), object: z.literal("response"), status: z.string() }),
    },
  },
  read(bytes, { requestId, nowMs }) {
    return parseBody(bytes, (body) => {
      const { chat, clientTools, dropped } = chatBodyOfResponses(body);
      return {
        payload: new ObjectPayload(chat),
        speaker: new ResponseSpeaker({
          token: idToken(requestId),
          createdSeconds: Math.floor(nowMs / 1000),
          request: body as Record<string, unknown>,
          clientTools,
        }),
        headers: dropped.length > 0 ? { [DROPPED_HEADER]: dropped.map(headerSafe).join(", ") } : undefined,
      };
    });
  },
  errorBody: ({ message, type, code }) => ({ error: { message, type, param: null, code } }),
};
