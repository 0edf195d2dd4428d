import { z } from "zod";
import type { Browser } from "../page/browser.ts";
import type { Deadline } from "../page/deadline.ts";
import { deviceNames, devices } from "../page/devices.ts";
import { permissionNames, permissionTypes } from "../page/emulation.ts";
import { defineOperation } from "./define.ts";
import { TimeoutMs } from "./schemas.ts";

const side = z.number().int().min(50).max(10_000);
export const Permissions = z
  .array(z.enum(permissionNames))
  .max(permissionNames.length)
  .describe("What pages may do; the list replaces the one before");
export const Location = z
  .object({
    latitude: z.number().min(-90).max(90),
    longitude: z.number().min(-180).max(180),
    accuracy: z.number().min(0).max(1_000_000).default(10),
  })
  .describe("Where the device is; also lets pages ask for it");

interface Grants {
  permissions?: (keyof typeof permissionTypes)[];
  geolocation?: z.output<typeof Location> | null;
}

export async function grant(
  browser: Browser,
  { permissions, geolocation }: Grants,
  deadline: Deadline,
): Promise<void> {
  const { root } = browser.connection;
  if (geolocation !== undefined) browser.emulation.location = geolocation;
  const wanted = new Set(permissions ?? browser.granted);
  if (geolocation) wanted.add("geolocation");
  browser.granted = [...wanted];
  await root.send("Browser.resetPermissions", {}, deadline.leftMs);
  if (wanted.size > 0)
    await root.send(
      "Browser.grantPermissions",
      { permissions: browser.granted.map((name) => permissionTypes[name]) },
      deadline.leftMs,
    );
}

export const resizeOperation = defineOperation({
  name: "resize",
  summary: "Set the size of the viewport, the device, the colour scheme, permissions and the location",
  method: "POST",
  path: "/resize",
  timeoutMs: 5_000,
  params: z
    .object({
      width: side.optional(),
      height: side.optional(),
      device: z.enum(deviceNames).optional().describe("Size, pixel ratio, touch and user agent of a device"),
      color_scheme: z.enum(["light", "dark", "no-preference"]).optional(),
      permissions: Permissions.optional(),
      geolocation: Location.nullable().optional(),
      timeout_ms: TimeoutMs,
    })
    .refine(({ width, height }) => (width === undefined) === (height === undefined), {
      path: ["height"],
      message: "is needed together with width",
    })
    .refine(
      ({ width, device, color_scheme, permissions, geolocation }) =>
        (width ?? device ?? color_scheme ?? permissions ?? geolocation) !== undefined,
      {
        path: ["width"],
        message: "is required (number), or device, color_scheme, permissions or geolocation",
      },
    ),
  result: z.object({ width: z.number(), height: z.number() }),
  run: async ({ browser, deadline }, params) => {
    const running = await browser();
    const page = await running.page();
    const { width, height, device, color_scheme, permissions, geolocation } = params;
    const { emulation } = running;
    if (device) {
      emulation.device = devices[device];
      const { width: own, height: tall } = devices[device];
      emulation.viewport = { width: own, height: tall };
    }
    if (width !== undefined && height !== undefined) emulation.viewport = { width, height };
    if (color_scheme) emulation.colorScheme = color_scheme;
    if (permissions !== undefined || geolocation !== undefined)
      await grant(running, { permissions, geolocation }, deadline);
    for (const each of running.pages.values()) each.emulate(emulation, true);
    const { width: shown, height: high } = await page.mainFrame.call("size", [], deadline.leftMs);
    return emulation.viewport ?? { width: shown, height: high };
  },
  tool: {
    name: "browser_resize",
    description: "Set the viewport size or a device; colour scheme, permissions and location too",
    input: z.object({
      width: z.number().optional(),
      height: z.number().optional(),
      device: z.enum(deviceNames).optional(),
      colorScheme: z.enum(["light", "dark"]).optional(),
      permissions: z.array(z.string()).optional().describe("Granted: geolocation, camera, clipboard-read, …"),
      geolocation: z.object({ latitude: z.number(), longitude: z.number() }).optional(),
    }),
    toParams: ({ colorScheme, ...input }) => ({ ...input, color_scheme: colorScheme }),
    present: async ({ width, height }) => ({ result: `The viewport is ${width}×${height}.` }),
  },
});
