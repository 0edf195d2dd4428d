import {
  type ReceivedCall,
  RpcFailure,
  type RpcHandler,
  type RpcPeer,
  type RpcSocketServer,
  startRpcSocketServer,
} from "@model-gateway/testing/rpc-socket-server.ts";

export interface FakeEngineOptions {
  capabilities?: string[];
  models?: { id: string; capabilities?: string[] }[];
  /** Replaces or adds methods. */
  handlers?: Record<string, RpcHandler>;
  port?: number;
}

/** Sends the pieces of a streamed answer, and the end. */
export function sendChunks(peer: RpcPeer, streamId: string, words: readonly string[]): void {
  for (const content of words)
    peer.notify("Engine.ChatChunk", {
      stream_id: streamId,
      delta: { content },
      finish_reason: null,
      done: false,
    });
  peer.notify("Engine.ChatChunk", {
    stream_id: streamId,
    delta: {},
    finish_reason: "stop",
    usage: { prompt_tokens: 3, completion_tokens: words.length, total_tokens: 3 + words.length },
    done: true,
  });
}

export const lastText = ({ params }: ReceivedCall): string => String(params.messages.at(-1)?.content ?? "");

/** An engine that speaks the engine protocol and says each message back, word by word. */
export function startFakeEngine(options: FakeEngineOptions = {}): RpcSocketServer {
  const { models = [{ id: "echo" }], handlers = {}, port } = options;
  const capabilities = options.capabilities ?? ["chat", "chat_stream", "embeddings", "realtime", "invoke"];
  const greeted = new WeakSet<RpcPeer>();
  const standard: Record<string, RpcHandler> = {
    "Engine.Models": () => ({ models }),
    "Engine.Chat": (call) => ({
      message: { role: "assistant", content: lastText(call) },
      finish_reason: "stop",
      usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
    }),
    "Engine.ChatStart": (call) => {
      const { stream_id } = call.params;
      queueMicrotask(() => sendChunks(call.peer, stream_id, lastText(call).match(/\S+\s*/g) ?? []));
      return { stream_id };
    },
    "Engine.ChatCancel": () => null,
    "Engine.Embeddings": ({ params }) => ({
      data: (params.input as string[]).map((text) => [text.length, 0.5]),
      usage: { prompt_tokens: params.input.length, total_tokens: params.input.length },
    }),
    "Engine.RealtimeStart": ({ params }) => ({ session_id: params.session_id }),
    "Engine.RealtimeEvent": ({ params, peer }) => {
      peer.notify("Engine.RealtimeEvent", {
        session_id: params.session_id,
        event: { type: "echo", of: params.event },
      });
    },
    "Engine.RealtimeStop": () => null,
  };
  return startRpcSocketServer((call) => {
    if (call.method === "Engine.Handshake" && !handlers["Engine.Handshake"]) {
      greeted.add(call.peer);
      return { name: "fake", version: "1", protocol: 1, capabilities };
    }
    // Like a real engine: nothing is answered on a connection that did not begin with a handshake.
    if (call.method !== "Engine.Handshake" && !greeted.has(call.peer))
      throw new RpcFailure(-32000, "handshake first");
    const handler = handlers[call.method] ?? standard[call.method];
    if (!handler) throw new RpcFailure(-32601, `Method not found: ${call.method}`);
    return handler(call);
  }, port);
}
