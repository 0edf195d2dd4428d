import type { Result } from "@model-gateway/client";

/** Names for the records that several parts of the console show; their fields come from the definitions. */
export type UsageRecord = Result<"usage.list">["records"][number];
export type Plan = Result<"billing.plan">;
export type VideoPrice = Result<"billing.video.pricing.get">["pricing"][number];
export type Group = Result<"group.list">[number];
export type Member = Result<"group.members.list">[number];
export type Statement = Pick<
  Result<"ledger.self">,
  "balance" | "entries" | "debt" | "debts" | "debt_entries"
>;
export type LedgerEntry = Statement["entries"][number];
export type MemoryEvent = Result<"memory.status">["events"][number];
export type AgentNode = Result<"agents.list">[number];
export type Gpu = AgentNode["gpus"][number];
export type GpuPoint = Result<"agents.history">[number];
export type NodeFit = Result<"agents.fits">[number];
export type VideoJob = Result<"video.list">["jobs"][number];
export type ModelRoute = Result<"routes.list">[number];
export type RouteTarget = ModelRoute["targets"][number];
