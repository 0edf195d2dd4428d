export * as methods from "./methods.ts";
export { ANY, type ImageLook, type ModelLimits, type UnitPrice, type WorkUnit } from "./pricing.ts";
export * as routes from "./routes.ts";
export { Billing } from "./service.ts";
export { DEFAULT_TIER, type Tier, UNKNOWN_TIER } from "./store.ts";
export { FALLBACK_VIDEO_PRICE, type VideoPrice, type VideoSize, videoCostNanoUsd } from "./video-cost.ts";
