import { z } from "zod";
import { defineOperation } from "./define.ts";
import { emulate, Location, Permissions } from "./device.ts";
import { TimeoutMs } from "./schemas.ts";

export const permissionsOperation = defineOperation({
  name: "permissions",
  summary: "Set what pages may do, and where the device is",
  method: "POST",
  path: "/permissions",
  timeoutMs: 5_000,
  params: z
    .object({
      permissions: Permissions.optional(),
      geolocation: Location.nullable().optional(),
      timeout_ms: TimeoutMs,
    })
    .refine(({ permissions, geolocation }) => permissions !== undefined || geolocation !== undefined, {
      path: ["permissions"],
      message: "is required (array; empty to take all back), or geolocation",
    }),
  result: z.object({ permissions: z.array(z.string()) }),
  run: async ({ browser, deadline }, params) => {
    const running = await browser();
    const { permissions, geolocation } = params;
    await emulate(running, { permissions, geolocation }, deadline);
    return { permissions: running.granted };
  },
});
