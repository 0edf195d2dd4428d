export * as methods from "./methods.ts";
export { ANY, type ImageLook, type ModelLimits, type UnitPrice, type WorkUnit } from "./pricing.ts";
export * as routes from "./routes.ts";
export { Billing, type BillingOptions } from "./service.ts";
export type { Tier } from "./store.ts";
export { DEFAULT_TIER, UNKNOWN_TIER } from "./tiers.ts";
export { FALLBACK_VIDEO_PRICE, type VideoPrice, type VideoSize, videoCostNanoUsd } from "./video-cost.ts";
