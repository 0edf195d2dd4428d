import type { VideoResult } from "@model-gateway/client";

export interface UsageRecord {
  id: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  created_at: string;
  ref_id: string | null;
}

export interface Plan {
  tiers: {
    name: string;
    monthly_usd_quota: number | null;
    monthly_token_quota: number | null;
    rpm: number;
  }[];
  current_tier: string;
  usage: { cost_usd: number; tokens: number; requests: number; quota_cost_usd: number; quota_tokens: number };
  remaining: { cost_usd: number | null; tokens: number | null };
  quota_exceeded: boolean;
  points_balance: number;
  points_per_usd: number;
}

export interface Group {
  id: string;
  name: string;
  description: string;
  my_role: "owner" | "admin" | "member" | null;
  member_count: number;
  enforce_model_allowlist: boolean;
  rpm_ceiling: number | null;
  created_at: string;
}

export interface Member {
  user_id: string;
  email: string;
  name: string;
  role: "admin" | "member";
  is_owner: boolean;
  cost_multiplier: number;
  is_active: boolean;
  joined_at: string;
}

export interface LedgerEntry {
  seq: number;
  kind: "topup" | "allocation" | "settlement" | "return";
  points: number;
  balance_after: number;
  counterparty: { type: "user" | "group" | "system"; id: string };
  request_id: string | null;
  note: string | null;
  created_at: string;
}

export interface Statement {
  balance: number;
  entries: LedgerEntry[];
}

export interface MemoryEvent {
  at: string;
  kind: "recall" | "writeback" | "delete";
  outcome: "ok" | "failed";
  count: number;
  duration_ms: number;
  detail: string | null;
}

export interface Gpu {
  index: number;
  name: string;
  memory_total_mb: number | null;
  memory_used_mb: number | null;
  utilization: number | null;
}

export interface AgentModel {
  model_id: string;
  status: "queued" | "downloading" | "loading" | "ready" | "failed" | "stopped";
  progress: number;
  message?: string;
  engine?: string;
  port?: number;
  backend: string | null;
  via: "direct" | "tunnel" | null;
}

export interface AgentNode {
  agent_id: string;
  name: string;
  version: string;
  host: string | null;
  online: boolean;
  gpus: Gpu[];
  gpu_utilization: number | null;
  models: AgentModel[];
  heartbeat_at: string | null;
  connected_at: string | null;
  created_at: string;
}

export interface RpcVideoJob {
  id: string;
  model: string;
  prompt?: string;
  status: "queued" | "running" | "done" | "failed" | "cancelled";
  progress: number;
  result: VideoResult | null;
  error: string | null;
  cost: number | null;
  created_at: number | string;
}

export interface VideoPrice {
  model: string;
  mode: string;
  base_price: number;
  price_per_second: number;
  price_per_frame: number;
  resolution_coeff: Record<string, number>;
  currency: string;
  enabled: boolean;
}

/** Results of methods that the generated types do not have yet. */
export interface Planned {
  "chat.send": { stream_id: string; memory: string };
  "usage.list": {
    records: UsageRecord[];
    total: number;
    limit: number;
    offset: number;
    project: string | null;
  };
  "billing.plan": Plan;
  "billing.plan.set": { ok: true };
  "billing.video.pricing.get": { pricing: VideoPrice[] };
  "billing.video.pricing.set": { ok: true };
  "group.list": Group[];
  "group.create": Group;
  "group.get": Group & { members: Member[] };
  "group.update": Group;
  "group.delete": { ok: true };
  "group.members.list": Member[];
  "group.members.add": Member;
  "group.members.update": Member;
  "group.members.remove": { ok: true };
  "group.invite.create": {
    id: string;
    token: string;
    role: "admin" | "member";
    email: string | null;
    max_uses: number;
    expires_at: string;
  };
  "group.invite.accept": Group;
  "group.models.list": { allowed: string[]; denied: string[] };
  "group.models.allow": unknown;
  "group.models.deny": unknown;
  "group.credits.topup": { balance: number };
  "group.credits.balance": Statement;
  "group.credits.allocate": unknown;
  "ledger.self": Statement;
  "agents.list": AgentNode[];
  "agents.register": { agent_id: string; token: string };
  "agents.deregister": { ok: true };
  "agents.status": AgentNode;
  "agents.deploy": { ok: true; stream_id: string };
  "agents.stop": { ok: true; stream_id: null };
  "memory.status": { enabled: boolean; writeback: boolean; events: MemoryEvent[] };
  "memory.delete": { deleted: boolean };
  "video.create": { job_id: string; stream_id: string };
  "video.get": RpcVideoJob;
  "video.list": { jobs: RpcVideoJob[] };
  "video.cancel": { ok: true };
  "realtime.start": { session_id: string; stream_session: string };
  "realtime.event": { ok: true };
  "realtime.stop": { removed: boolean };
}
