export const REF_LENGTH_MAX = 64;
export const MODEL_ID_LENGTH_MAX = 256;

export interface RequestLine {
  /** The key of its line and row, so a replay is harmless. It contains when the request came. */
  requestId: string;
  atMs: number;
  userId: string | null;
  keyId: string | null;
  /** `api_key_id` of the row: the key's prefix, or `jwt-<user-uuid>`. */
  attribution: string | null;
  project: string | null;
  groupId: string | null;
  /** The path or method that was called. Null, like `status`, for a charge without a request, such as a finished video. */
  surface: string | null;
  /** The model that served the request, or would have. */
  model: string | null;
  modelAsked: string | null;
  /** The backend of the last attempt, and why it was chosen. */
  backend: string | null;
  reason: string | null;
  status: number | null;
  code: string | null;
  message: string | null;
  attempts: number;
  failedAttempts: string | null;
  queueMs: number;
  firstTokenMs: number | null;
  durationMs: number;
  promptTokens: number;
  completionTokens: number;
  /** Prompt tokens read from the upstream's cache, and written to it. */
  cachedTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
  /** What the cache saved; below 0 if writing to it cost more than it saved. */
  cacheSavedNanoUsd?: number;
  estimated: boolean;
  costNanoUsd: number | null;
  /** The model has no price and should: models on own hardware need none. */
  unpriced?: boolean;
  /** What was charged: `gateway`, `rpc`, `realtime`, or the name of the backend's capability; null: nothing. */
  channel: string | null;
  refId: string | null;
  clientIp: string | null;
}

/** In the order of the journal's lines; columns of the row are named after them. */
export const LINE_FIELDS = [
  ...["requestId", "atMs", "userId", "keyId", "attribution", "project", "groupId"],
  ...["surface", "model", "modelAsked", "backend", "reason", "status", "code", "message"],
  ...["attempts", "failedAttempts", "queueMs", "firstTokenMs", "durationMs"],
  ...["promptTokens", "completionTokens", "cachedTokens", "cacheWriteTokens", "reasoningTokens"],
  ...["cacheSavedNanoUsd", "estimated", "costNanoUsd", "channel", "refId", "clientIp"],
] as const satisfies readonly (keyof RequestLine)[];

export interface ChargedLine extends RequestLine {
  userId: string;
  attribution: string;
  model: string;
  channel: string;
}

export const isCharged = <L extends RequestLine>(line: L): line is L & ChargedLine => line.channel !== null;
