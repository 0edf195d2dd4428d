import type { RpcConnection } from "@model-gateway/wire/json-rpc";
import type { MediaRates, RealtimeLink, RealtimeOpen } from "../contract.ts";

const START_TIMEOUT_MS = 15_000;

/** An engine may run any model: the highest rates that are known of one. */
export const ENGINE_RATES: MediaRates = {
  inputAudioHz: 16_000,
  outputAudioHz: 24_000,
  inputAudioTokensPerSecond: 25,
  outputAudioTokensPerSecond: 25,
  audioSecondsMin: 0,
  tokensPerImage: 1_445,
};

export interface EngineSession {
  onEvent(event: Record<string, unknown>): void;
  onStop(reason: string): void;
}
export type SessionTable = Map<string, EngineSession>;

/** Opens a realtime session on an engine; events travel both ways as notifications. */
export async function openRealtime(
  { connection, table }: { connection: RpcConnection; table: SessionTable },
  { sessionId, model, config, onEvent, onClose }: RealtimeOpen,
  signal: AbortSignal,
): Promise<RealtimeLink> {
  const cleanup: (() => void)[] = [];
  let open = true;
  const end = (tell: () => void) => {
    if (!open) return;
    open = false;
    for (const undo of cleanup) undo();
    tell();
  };
  const stopped = (reason: string) => end(() => onClose(reason));
  table.set(sessionId, { onEvent, onStop: stopped });
  cleanup.push(() => table.delete(sessionId), connection.hold());
  try {
    const params = { session_id: sessionId, model, config };
    await connection.call("Engine.RealtimeStart", params, { signal, timeoutMs: START_TIMEOUT_MS });
  } catch (error) {
    end(() => connection.notify("Engine.RealtimeStop", { session_id: sessionId }));
    throw error;
  }
  cleanup.push(connection.onClose(stopped));
  return {
    send: (event) => open && connection.notify("Engine.RealtimeEvent", { session_id: sessionId, event }),
    close: () => end(() => connection.notify("Engine.RealtimeStop", { session_id: sessionId })),
  };
}
