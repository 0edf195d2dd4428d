import { z } from "zod";
import { defineMethod, NoParams } from "../../kernel/method.ts";

export const status = defineMethod({
  name: "system.status",
  summary: "What the service is doing right now",
  auth: "public",
  params: NoParams,
  result: z.object({
    agents_online: z.int(),
    gpu_nodes: z.int(),
    models_deployed: z.int(),
    requests_total: z.int(),
    requests_per_minute: z.int(),
    uptime_seconds: z.int(),
  }),
  handler: ({ rooms }) => rooms.system.status(),
});

export const probe = defineMethod({
  name: "system.probe",
  summary: "Acknowledge, then close: only on a WebSocket without a token",
  auth: "anonymous_socket",
  params: NoParams,
  result: z.object({ ok: z.literal(true), status: z.literal("ok") }),
  handler: () => ({ ok: true as const, status: "ok" as const }),
});
