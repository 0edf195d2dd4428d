export const REF_LENGTH_MAX = 64;
export const MODEL_ID_LENGTH_MAX = 256;

/** One request as its journal line and its row say it: what was asked, how it ended, and what it used. */
export interface RequestLine {
  /** Its key everywhere: what makes a replay harmless. Ids of requests say when they came. */
  requestId: string;
  atMs: number;
  userId: string | null;
  keyId: string | null;
  /** `api_key_id` of the row: the key's prefix, or `jwt-<user-uuid>`. */
  attribution: string | null;
  project: string | null;
  groupId: string | null;
  /** The path or method that was called; null, as is `status`: a charge that is not a request of its own. */
  surface: string | null;
  /** The one that served, or would have. */
  model: string | null;
  /** As the client wrote it, where that is not the one that served. */
  modelAsked: string | null;
  /** The one that was asked last, and why that one. */
  backend: string | null;
  reason: string | null;
  /** HTTP status, also of what came through another door. */
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
  /** Of the prompt: read from the upstream's cache, and written to it. */
  cachedTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
  /** What it would have cost more without the cache; less than 0 where writing to it cost more than it saved. */
  cacheSavedNanoUsd?: number;
  estimated: boolean;
  costNanoUsd: number | null;
  /** It should have one: what runs on own hardware need not. */
  unpriced?: boolean;
  /** What was charged: `gateway`, `rpc`, `realtime`, or the backend capability's name; null: nothing. */
  channel: string | null;
  refId: string | null;
  clientIp: string | null;
}

/** In the order of the journal's lines; columns of the row are named after them. */
export const LINE_FIELDS = [
  "requestId",
  "atMs",
  "userId",
  "keyId",
  "attribution",
  "project",
  "groupId",
  "surface",
  "model",
  "modelAsked",
  "backend",
  "reason",
  "status",
  "code",
  "message",
  "attempts",
  "failedAttempts",
  "queueMs",
  "firstTokenMs",
  "durationMs",
  "promptTokens",
  "completionTokens",
  "cachedTokens",
  "cacheWriteTokens",
  "reasoningTokens",
  "cacheSavedNanoUsd",
  "estimated",
  "costNanoUsd",
  "channel",
  "refId",
  "clientIp",
] as const satisfies readonly (keyof RequestLine)[];

export interface ChargedLine extends RequestLine {
  userId: string;
  attribution: string;
  model: string;
  channel: string;
}

export const isCharged = <L extends RequestLine>(line: L): line is L & ChargedLine => line.channel !== null;
