import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";

export const backendsProgress = defineNotification({
  name: "backends.progress",
  summary: "One request of a backend's test has ended; on the stream_id that was given to the test",
  params: z.object({ stream_id: z.string(), name: z.string(), ok: z.boolean(), detail: z.string() }),
});
