import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";

export const realtimeEvent = defineNotification({
  name: "realtime.event",
  summary: "One event of the upstream, or of the session itself, on its stream_session",
  params: z.object({
    session_id: z.string(),
    event: z.record(z.string(), z.unknown()).describe("As the upstream sent it; `type` says what it is"),
  }),
});
