/** The payloads of the notifications that the gateway sends over its event streams. Types only. */

export interface ChatUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

export interface ToolCall {
  id?: string;
  index?: number;
  type?: string;
  function?: { name?: string; arguments?: string };
}

export interface ChatStream {
  stream_id: string;
  content?: string;
  role?: string;
  reasoning?: string;
  tool_calls?: ToolCall[];
  finish_reason?: string | null;
  done?: boolean;
  usage?: ChatUsage | null;
  error?: { code: number | string; message: string };
}

export interface ModelsProgress {
  stream_id: string;
  agent_id: string;
  model_id: string;
  status: "queued" | "downloading" | "loading" | "ready" | "failed" | "stopped";
  /** 0 to 100. */
  progress: number;
  message?: string;
}

export interface VideoResult {
  url: string;
  mime_type: string;
  width?: number;
  height?: number;
  duration_seconds?: number;
  expires_at?: string;
}

/** Why a request with an API key was refused, as in the REST answer. */
export interface KeyRefusal {
  status: number;
  code: string;
  message: string;
}

/** What each notification carries, by its method. */
export interface Notifications {
  "chat.stream": ChatStream;
  "models.progress": ModelsProgress;
  "video.progress": { job_id: string; status: string; progress: number };
  "video.done": { job_id: string; status: string; result: VideoResult | null; cost: number | null };
  "video.failed": { job_id: string; status: string; error: string };
  "realtime.event": { session_id: string; event: { type: string; [field: string]: unknown } };
  /**
   * On the channel of a key's id: its first answer, and every refusal. On the channel `key-<prefix>`: refusals of
   * unknown keys whose uuid begins with that prefix; they have no id.
   */
  "key.request": { key_id: string; ok: true } | ({ key_id: string | null; ok: false } & KeyRefusal);
}

export type Notification = {
  [M in keyof Notifications]: { method: M; params: Notifications[M] };
}[keyof Notifications];
