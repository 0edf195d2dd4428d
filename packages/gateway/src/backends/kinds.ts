export { cloudRealtime } from "./cloud-realtime/index.ts";
export { cloudVideo } from "./cloud-video/index.ts";
export { engine } from "./engine/index.ts";
export { external } from "./external/index.ts";
export { localServer } from "./local-server/index.ts";
