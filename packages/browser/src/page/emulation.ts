/** The emulated device and permissions that pages see. */
import type { CdpSession } from "../cdp/connection.ts";
import { type Device, devices } from "./devices.ts";

export type ColorScheme = "light" | "dark" | "no-preference";

export interface Location {
  latitude: number;
  longitude: number;
  accuracy: number;
}

/** Names as pages know them; "sensors" stands for all of those. */
export const permissionNames = [
  "geolocation",
  "notifications",
  "camera",
  "microphone",
  "clipboard-read",
  "clipboard-write",
  "midi",
  "screen-wake-lock",
  "storage-access",
  "local-fonts",
  "idle-detection",
  "window-management",
  "sensors",
] as const;

export type PermissionName = (typeof permissionNames)[number];

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

  /**
   * Tells a page everything that differs from an ordinary one; `all`: what does not differ any more, too. Fails where
   * the engine cannot do it. Turning off is not waited for: an engine that does not know it never had it on.
   */
  async apply(session: CdpSession, all: boolean, timeoutMs?: number): Promise<void> {
    const { deviceScaleFactor, mobile, touch, userAgent, platform } = this.device;
    const asked: Promise<unknown>[] = [];
    if (this.viewport)
      asked.push(
        session.send(
          "Emulation.setDeviceMetricsOverride",
          { ...this.viewport, deviceScaleFactor, mobile },
          timeoutMs,
        ),
      );
    if (touch)
      asked.push(
        session.send("Emulation.setTouchEmulationEnabled", { enabled: true, maxTouchPoints: 5 }, timeoutMs),
      );
    else if (all) session.tell("Emulation.setTouchEmulationEnabled", { enabled: false });
    if (userAgent !== null)
      asked.push(session.send("Emulation.setUserAgentOverride", { userAgent, platform }, timeoutMs));
    else if (all) session.tell("Emulation.setUserAgentOverride", { userAgent: "" });
    if (this.colorScheme !== null || all) {
      const features = [{ name: "prefers-color-scheme", value: this.colorScheme ?? "" }];
      asked.push(session.send("Emulation.setEmulatedMedia", { features }, timeoutMs));
    }
    if (this.location) asked.push(session.send("Emulation.setGeolocationOverride", this.location, timeoutMs));
    else if (all) session.tell("Emulation.clearGeolocationOverride");
    await Promise.all(asked);
  }
}
