export { COUNTED_MAX, estimatePromptTokens, estimateTokens, TokenCounter } from "./estimate.ts";
export { FETCHED_TOKENS, IMAGE_TOKENS, MEDIA_NAMES, mediaTokens } from "./media.ts";
export { type MeteringOptions, MeteringService } from "./service.ts";
export {
  JournalSettler,
  RefusedRows,
  type SettleNews,
  type SettleOrder,
  type SettleReport,
  type Settler,
} from "./settler.ts";
export type {
  Admission,
  AdmitOptions,
  Bound,
  FinalUsage,
  Metering,
  PointsHold,
  RecordOptions,
  TokenBound,
} from "./types.ts";
