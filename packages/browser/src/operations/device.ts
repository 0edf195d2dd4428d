import { z } from "zod";
import type { Browser } from "../page/browser.ts";
import type { Deadline } from "../page/deadline.ts";
import { deviceNames, devices } from "../page/devices.ts";
import { type Emulation, type PermissionName, permissionNames } from "../page/emulation.ts";
import { defineOperation } from "./define.ts";
import { Mocks, mock, Network } from "./mock.ts";
import { TimeoutMs } from "./schemas.ts";

const side = z.number().int().min(50).max(10_000);
const Permissions = z
  .array(z.enum(permissionNames))
  .max(permissionNames.length)
  .describe("What pages may do; the list replaces the one before");
const Location = z
  .object({
    latitude: z.number().min(-90).max(90),
    longitude: z.number().min(-180).max(180),
    accuracy: z.number().min(0).max(1_000_000).default(10),
  })
  .describe("Where the device is; also lets pages ask for it");

interface Grants {
  permissions?: PermissionName[];
  geolocation?: z.output<typeof Location> | null;
}

/** Where the engine cannot grant all of it, what was granted before stays. */
async function grant(
  browser: Browser,
  { permissions, geolocation }: Grants,
  deadline: Deadline,
): Promise<void> {
  const {
    connection: { root },
    context,
  } = browser;
  const before = browser.granted;
  const wanted = new Set(permissions ?? before);
  if (geolocation) wanted.add("geolocation");
  // Not Browser.grantPermissions: it refuses all others, and pages would not be seen to ask for them any more.
  const toGrant = (name: PermissionName) =>
    ({
      permission: { name: name === "sensors" ? "accelerometer" : name },
      setting: "granted",
      ...context,
    }) as const;
  try {
    await root.send("Browser.resetPermissions", context, deadline.leftMs);
    await Promise.all(
      [...wanted].map((name) => root.send("Browser.setPermission", toGrant(name), deadline.leftMs)),
    );
  } catch (error) {
    root.tell("Browser.resetPermissions", context);
    for (const name of before) root.tell("Browser.setPermission", toGrant(name));
    throw error;
  }
  browser.granted = [...wanted];
}

type EmulationChange = Partial<Pick<Emulation, "viewport" | "device" | "colorScheme">>;

/** For all pages. Where the engine cannot do it, everything stays as it was. */
async function emulate(
  browser: Browser,
  change: EmulationChange & Grants,
  deadline: Deadline,
): Promise<void> {
  const { permissions, geolocation, ...seen } = change;
  const { emulation } = browser;
  const active = await browser.page();
  const before = { ...emulation };
  Object.assign(emulation, seen);
  if (geolocation !== undefined) emulation.location = geolocation;
  try {
    if (permissions !== undefined || geolocation !== undefined)
      await grant(browser, { permissions, geolocation }, deadline);
    await active.emulate(emulation, true, deadline.leftMs);
  } catch (error) {
    Object.assign(emulation, before);
    active.emulate(emulation, true).catch(() => {});
    throw error;
  }
  for (const page of browser.pages.values())
    if (page !== active) page.emulate(emulation, true).catch(() => {});
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
      mocks: Mocks.optional(),
      network: Network.optional(),
      timeout_ms: TimeoutMs,
    })
    .refine(({ width, height }) => (width === undefined) === (height === undefined), {
      path: ["height"],
      message: "is needed together with width",
    })
    .refine(({ timeout_ms: _, ...wanted }) => Object.values(wanted).some((each) => each !== undefined), {
      path: ["width"],
      message: "is required (number), or device, color_scheme, permissions, geolocation, mocks or network",
    }),
  result: z.object({ width: z.number(), height: z.number() }),
  run: async ({ session, browser, deadline }, params) => {
    const running = await browser();
    const { width, height, device, color_scheme, permissions, geolocation } = params;
    const change: EmulationChange = {};
    if (device) {
      change.device = devices[device];
      change.viewport = { width: devices[device].width, height: devices[device].height };
    }
    if (width !== undefined && height !== undefined) change.viewport = { width, height };
    if (color_scheme) change.colorScheme = color_scheme;
    mock(session, running, params);
    await emulate(running, { ...change, permissions, geolocation }, deadline);
    const { mainFrame } = await running.page();
    const shown = await mainFrame.call("size", [], deadline.leftMs);
    return running.emulation.viewport ?? { width: shown.width, height: shown.height };
  },
  tool: {
    name: "browser_resize",
    description: "Set viewport size, device, colour scheme, permissions, location, network, mocks",
    input: z.object({
      width: z.number().optional(),
      height: z.number().optional(),
      device: z.enum(deviceNames).optional(),
      colorScheme: z.enum(["light", "dark"]).optional(),
      permissions: z.array(z.string()).optional().describe("Granted: geolocation, camera, clipboard-read, …"),
      geolocation: z.object({ latitude: z.number(), longitude: z.number() }).optional(),
      network: Network.optional(),
      mocks: z
        .array(z.any())
        .optional()
        .describe("Instead of servers: {url: part or *, status, body, headers, delay_ms, fail}"),
    }),
    toParams: ({ colorScheme, ...input }) => ({ ...input, color_scheme: colorScheme }),
    present: async ({ width, height }) => ({ result: `The viewport is ${width}×${height}.` }),
  },
});
