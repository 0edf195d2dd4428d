import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";

export const testAlerts = defineMethod({
  name: "alerts.test",
  summary: "Send a test alert by mail and to the webhook, as far as they are set",
  auth: "admin",
  hint: "alerts are for administrators",
  result: z.array(
    z.object({ to: z.enum(["webhook", "mail"]), ok: z.boolean(), detail: z.string().nullable() }),
  ),
  handler: ({ rooms }) => rooms.alerts.test(),
});
