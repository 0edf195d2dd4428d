/** Devices that a page can be shown as on. */
export interface Device {
  width: number;
  height: number;
  deviceScaleFactor: number;
  mobile: boolean;
  touch: boolean;
  /** Null: the browser's own. */
  userAgent: string | null;
  platform: string;
}

const android = (model: string) =>
  `Mozilla/5.0 (Linux; Android 15; ${model}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Mobile Safari/537.36`;
const apple = (system: string) =>
  `Mozilla/5.0 (${system} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1`;
const phone = { mobile: true, touch: true };

export const devices = {
  desktop: {
    width: 1280,
    height: 720,
    deviceScaleFactor: 1,
    mobile: false,
    touch: false,
    userAgent: null,
    platform: "",
  },
  iphone: {
    ...phone,
    width: 393,
    height: 852,
    deviceScaleFactor: 3,
    userAgent: apple("iPhone; CPU iPhone OS 18_5"),
    platform: "iPhone",
  },
  ipad: {
    ...phone,
    width: 820,
    height: 1180,
    deviceScaleFactor: 2,
    userAgent: apple("iPad; CPU OS 18_5"),
    platform: "iPad",
  },
  pixel: {
    ...phone,
    width: 412,
    height: 915,
    deviceScaleFactor: 2.625,
    userAgent: android("Pixel 9"),
    platform: "Linux armv81",
  },
  galaxy: {
    ...phone,
    width: 360,
    height: 780,
    deviceScaleFactor: 3,
    userAgent: android("SM-S931B"),
    platform: "Linux armv81",
  },
} satisfies Record<string, Device>;

export type DeviceName = keyof typeof devices;
export const deviceNames = Object.keys(devices) as [DeviceName, ...DeviceName[]];
