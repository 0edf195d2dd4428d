// Made by scripts/gen.ts from the definitions; `npm run gen` writes it anew.

/** What each notification carries, by its method. */
export interface Notifications {
  /** A piece of the answer to chat.send, on its stream_id; the last one is done. */
  "chat.stream": {
    stream_id: string;
    content?: string;
    role?: string;
    reasoning?: string;
    tool_calls?: {
      id?: string;
      index?: number;
      type?: string;
      function?: { name?: string; arguments?: string; [field: string]: unknown };
      [field: string]: unknown;
    }[];
    finish_reason?: string | null;
    done?: boolean;
    usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number } | null;
    /** Why the answer failed, as the error of a call */
    error?: { code: number; message: string };
  };
  /** How requests with an API key go, on the channel of its id, for its owner: the first answer, and every refusal; on key-<prefix>, refusals of unknown keys that begin like it. */
  "key.request": { key_id: string; ok: true } | {
    /** Null: nobody has this key */
    key_id: string | null;
    ok: false;
    status: number;
    code: string;
    message: string;
  };
  /** A video job is done. */
  "video.done": {
    job_id: string;
    status: "queued" | "running" | "done" | "failed" | "cancelled";
    result: {
      url: string;
      mime_type: string;
      width?: number;
      height?: number;
      duration_seconds?: number;
      expires_at?: string;
    } | null;
    /** USD; 0 until the job is done */
    cost: number;
  };
  /** A video job failed or was cancelled; nothing is charged. */
  "video.failed": {
    job_id: string;
    status: "queued" | "running" | "done" | "failed" | "cancelled";
    error: string;
  };
  /** How far a video job is, on its stream_id and on its own id. */
  "video.progress": {
    job_id: string;
    status: "queued" | "running" | "done" | "failed" | "cancelled";
    /** 0 to 100 */
    progress: number;
  };
  /** One event of the upstream, or of the session itself, on its stream_session. */
  "realtime.event": {
    session_id: string;
    /** As the upstream sent it; `type` says what it is */
    event: Record<string, unknown>;
  };
  /** How a deployment stands, on its stream_id. */
  "models.progress": {
    stream_id: string;
    agent_id: string;
    model_id: string;
    status: "queued" | "downloading" | "loading" | "ready" | "failed" | "stopped";
    /** 0 to 100 */
    progress: number;
    message?: string;
  };
}
