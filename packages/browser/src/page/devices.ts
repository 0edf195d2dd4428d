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
const phone = (
  [width, height, deviceScaleFactor]: [number, number, number],
  userAgent: string,
  platform: string,
): Device => ({ width, height, deviceScaleFactor, mobile: true, touch: true, userAgent, platform });
const desktop: Device = {
  width: 1280,
  height: 720,
  deviceScaleFactor: 1,
  mobile: false,
  touch: false,
  userAgent: null,
  platform: "",
};

export const devices = {
  desktop,
  iphone: phone([393, 852, 3], apple("iPhone; CPU iPhone OS 18_5"), "iPhone"),
  ipad: phone([820, 1180, 2], apple("iPad; CPU OS 18_5"), "iPad"),
  pixel: phone([412, 915, 2.625], android("Pixel 9"), "Linux armv81"),
  galaxy: phone([360, 780, 3], android("SM-S931B"), "Linux armv81"),
};

type DeviceName = keyof typeof devices;
export const deviceNames = Object.keys(devices) as [DeviceName, ...DeviceName[]];
