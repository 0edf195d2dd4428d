import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { ConversationId } from "../conversations/index.ts";

const CLIENT_EVENTS = [
  "session.update",
  "input_audio_buffer.append",
  "input_audio_buffer.commit",
  "input_audio_buffer.clear",
  "input_image_buffer.append",
  "response.create",
  "response.cancel",
  "session.stop",
] as const;

export const start = defineMethod({
  name: "realtime.start",
  summary: "Open a voice session with a model; its events arrive on stream_session",
  auth: "jwt",
  audit: false,
  recorded: true,
  notifies: ["realtime.event"],
  params: z.object({
    model: z.string().min(1).max(128),
    config: z
      .looseObject({})
      .optional()
      .describe("Session settings in the upstream's own words, sent as session.update"),
    conversation_id: ConversationId.optional().describe("Transcripts are stored there as assistant messages"),
    ref_id: z
      .string()
      .trim()
      .min(1)
      .max(64)
      .optional()
      .describe("Attribution reference; usage rows are then written even with zero tokens"),
  }),
  result: z.object({
    session_id: z.uuid(),
    stream_session: z.uuid().describe("Subscribe at /api/rpc/events?session=<this>"),
  }),
  handler: ({ params, actor, rooms, record }) =>
    rooms.realtime.start(actor, {
      record,
      model: params.model,
      config: params.config,
      conversationId: params.conversation_id,
      refId: params.ref_id,
    }),
});

export const event = defineMethod({
  name: "realtime.event",
  summary: "Queue one client event for the upstream; only the session's owner may",
  auth: "jwt",
  audit: false,
  params: z.object({
    session_id: z.string().max(64),
    event: z
      .looseObject({ type: z.enum(CLIENT_EVENTS) })
      .describe("Audio is base64 PCM16, 16 kHz to the model and 24 kHz from it, and passes untouched"),
  }),
  handler: ({ params, actor, rooms }) => rooms.realtime.send(actor, params.session_id, params.event),
});

export const stop = defineMethod({
  name: "realtime.stop",
  summary: "End one of your voice sessions",
  auth: "jwt",
  audit: false,
  params: z.object({ session_id: z.string().max(64) }),
  result: z.object({ removed: z.boolean() }),
  handler: async ({ params, actor, rooms }) => ({
    removed: await rooms.realtime.stop(actor, params.session_id),
  }),
});
