export { SentFacts } from "./inject.ts";
export * as methods from "./methods.ts";
export type { RecalledItem } from "./protocol.ts";
export { Memory, type MemoryOptions, type Recall, type RecallState } from "./service.ts";
export type { Turn } from "./writeback.ts";
