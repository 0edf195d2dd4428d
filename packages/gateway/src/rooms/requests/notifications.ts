import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";
import { RecordView } from "./view.ts";

export const requestsEnded = defineNotification({
  name: "requests.ended",
  summary: "Requests that have just ended, on the stream_id of requests.watch",
  params: z.object({
    stream_id: z.string(),
    records: z.array(RecordView).describe("Oldest first; names of users and keys are left out"),
    skipped: z.int().describe("How many more ended at the same time"),
  }),
});
