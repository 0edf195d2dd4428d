/**
 * The messages of the engine protocol: JSON-RPC 2.0 over a WebSocket that the gateway opens. Every connection begins
 * with `Engine.Handshake`; docs/backends.md lists the methods.
 */
import { z } from "zod";

export const ENGINE_PROTOCOL_VERSION = 1;
/** Methods with this prefix belong to the protocol. */
export const ENGINE_METHOD_PREFIX = "Engine.";

/** Result of `Engine.Handshake`. Unknown capabilities are ignored, so that later versions can add some. */
export const HandshakeResult = z.object({
  name: z.string(),
  version: z.string().optional(),
  protocol: z.int(),
  capabilities: z.array(z.string()),
});

/** Result of `Engine.Models`. */
export const ModelsResult = z.object({
  models: z.array(z.object({ id: z.string(), capabilities: z.array(z.string()).optional() })),
});

/** Result of `Engine.Embeddings`. */
export const EmbeddingsResult = z.object({
  data: z.array(z.array(z.number())),
  usage: z.object({ prompt_tokens: z.number() }).partial().optional(),
});

/** Params of the notification `Engine.ChatChunk`, checked field by field as they are used. */
export interface ChatChunkParams {
  delta?: unknown;
  finish_reason?: unknown;
  usage?: unknown;
  done?: unknown;
  error?: unknown;
}

/** Result of `Engine.VideoStart`. */
export const VideoStartResult = z.object({ task_id: z.string().min(1).max(512) });

/** A finished video. */
export const VideoClip = z.object({
  url: z.url(),
  mime_type: z.string().default("video/mp4"),
  width: z.number().optional(),
  height: z.number().optional(),
  duration_seconds: z.number().optional(),
  expires_at: z.string().optional(),
});

/** Result of `Engine.VideoPoll`. */
export const VideoPollResult = z.discriminatedUnion("state", [
  z.object({ state: z.literal("pending"), progress: z.number().optional() }),
  z.object({ state: z.literal("succeeded"), result: VideoClip }),
  z.object({ state: z.literal("failed"), error: z.string() }),
]);
