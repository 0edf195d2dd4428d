/** What pages are told of the device that they are shown on, and of what they may do there. */
import type { Protocol } from "devtools-protocol";
import type { CdpSession } from "../cdp/connection.ts";
import { type Device, devices } from "./devices.ts";

export type ColorScheme = "light" | "dark" | "no-preference";

export interface Location {
  latitude: number;
  longitude: number;
  accuracy: number;
}

/** Names as pages know them, and the browser's own. */
export const permissionTypes = {
  geolocation: "geolocation",
  notifications: "notifications",
  camera: "videoCapture",
  microphone: "audioCapture",
  "clipboard-read": "clipboardReadWrite",
  "clipboard-write": "clipboardSanitizedWrite",
  midi: "midi",
  "screen-wake-lock": "wakeLockScreen",
  "storage-access": "storageAccess",
  "local-fonts": "localFonts",
  "idle-detection": "idleDetection",
  "window-management": "windowManagement",
  sensors: "sensors",
} as const satisfies Record<string, Protocol.Browser.PermissionType>;

export type PermissionName = keyof typeof permissionTypes;
export const permissionNames = Object.keys(permissionTypes) as [PermissionName, ...PermissionName[]];

/** Holds for all pages of the browser, those that come later included. */
export class Emulation {
  /** Null: as large as the window. */
  viewport: { width: number; height: number } | null;
  device: Device = devices.desktop;
  colorScheme: ColorScheme | null = null;
  location: Location | null = null;

  constructor(viewport: { width: number; height: number } | null) {
    this.viewport = viewport;
  }

  /** Tells a page everything that differs from an ordinary one; `all`: what does not differ any more, too. */
  apply(session: CdpSession, all: boolean): void {
    const { deviceScaleFactor, mobile, touch, userAgent, platform } = this.device;
    if (this.viewport)
      session.tell("Emulation.setDeviceMetricsOverride", { ...this.viewport, deviceScaleFactor, mobile });
    if (touch || all)
      session.tell("Emulation.setTouchEmulationEnabled", { enabled: touch, maxTouchPoints: 5 });
    if (userAgent !== null || all)
      session.tell("Emulation.setUserAgentOverride", { userAgent: userAgent ?? "", platform });
    if (this.colorScheme !== null || all)
      session.tell("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: this.colorScheme ?? "" }],
      });
    if (this.location) session.tell("Emulation.setGeolocationOverride", this.location);
    else if (all) session.tell("Emulation.clearGeolocationOverride");
  }
}
