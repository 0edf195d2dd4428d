import { z } from "zod";
import { defineNotification } from "../../kernel/method.ts";

export const modelsProgress = defineNotification({
  name: "models.progress",
  summary: "Progress of a deployment, on its stream_id",
  params: z.object({
    stream_id: z.string(),
    agent_id: z.string(),
    model_id: z.string(),
    status: z.enum(["queued", "downloading", "loading", "ready", "failed", "stopped"]),
    progress: z.number().describe("0 to 100"),
    message: z.string().optional(),
  }),
});
