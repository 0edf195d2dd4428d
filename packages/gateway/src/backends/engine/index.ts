import { ENGINE_METHOD_PREFIX, ENGINE_PROTOCOL_VERSION } from "@model-gateway/protocol/engine.ts";
import { RpcAnswerError, RpcClient, type RpcConnection, RpcSocketError } from "@model-gateway/wire/json-rpc";
import { isObject } from "../../kernel/json.ts";
import { OPENAI_VOICE_SETTINGS, VOICE_SETTINGS } from "../../kernel/known-fields.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  type CapabilityName,
  type ChatCall,
  type ModelCall,
  type ModelInfo,
  type ProbeResult,
} from "../contract.ts";
import { ChatEvents, chatIdentity, completionBody } from "../shared/chat-events.ts";
import { embeddingsAnswer, inputTexts } from "../shared/embeddings.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { probeFailure } from "../shared/probe.ts";
import { eventAnswer, jsonAnswer } from "../shared/upstream-http.ts";
import {
  ENGINE_CAPABILITIES,
  ENGINE_CLIP,
  type EngineIdentity,
  engineVideo,
  readCompletion,
  readEmbeddings,
  readHandshake,
  readModels,
  toChatParams,
} from "./protocol.ts";
import {
  ENGINE_RATES,
  openChatStream,
  openRealtime,
  type SessionTable,
  type StreamTable,
} from "./streams.ts";

const CONNECT_TIMEOUT_MS = 5_000;
const HANDSHAKE_TIMEOUT_MS = 5_000;
const MODELS_TIMEOUT_MS = 5_000;
/** Callers run control loops of 20-30 Hz: a later answer is useless to them. */
const INVOKE_TIMEOUT_MS = 30_000;
const METHOD_NOT_FOUND = -32601;
const CLIENT = { name: "model-gateway", version: "1" };

/** An engine by WebSocket and JSON-RPC. It announces its capabilities in the handshake. */
class Engine implements Backend {
  readonly writesOne = true;
  readonly #client: RpcClient;
  readonly #streams: StreamTable = new Map();
  readonly #sessions: SessionTable = new Map();
  #identity: EngineIdentity | null = null;
  #discovered: readonly ModelInfo[] = [];

  constructor(
    readonly config: BackendConfig,
    readonly deps: BackendDeps,
  ) {
    this.#client = new RpcClient({
      url: config.url,
      headers: config.apiKey ? { authorization: `Bearer ${config.apiKey}` } : undefined,
      clock: deps.clock,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      handshake: async (connection) => {
        const params = { protocol: ENGINE_PROTOCOL_VERSION, client: CLIENT };
        this.#identity = readHandshake(
          await connection.call("Engine.Handshake", params, { timeoutMs: HANDSHAKE_TIMEOUT_MS }),
        );
      },
      onNotification: (method, params) => this.#receive(method, params),
    });
  }

  /** By the operator's list, or else the engine's own, which is unknown before the handshake. */
  #can(capability: CapabilityName): boolean {
    const declared = this.config.capabilities;
    if (declared && declared.length > 0) return declared.includes(capability);
    return this.#identity?.capabilities.has(capability) ?? false;
  }

  get chat(): Backend["chat"] {
    return this.#can("chat") ? (call) => this.#chat(call) : undefined;
  }
  get embed(): Backend["embed"] {
    return this.#can("embeddings") ? (call) => this.#embed(call) : undefined;
  }
  get realtime(): Backend["realtime"] {
    return this.#can("realtime")
      ? {
          rates: ENGINE_RATES,
          known: [...ENGINE_VOICE, ...(this.config.fields ?? [])],
          open: (options, signal) =>
            this.#on(signal, (connection) => openRealtime(connection, this.#sessions, options, signal)),
        }
      : undefined;
  }
  get video(): Backend["video"] {
    return this.#can("video")
      ? engineVideo((method, params, signal) => this.#call(method, params, { signal }), this.config.fields)
      : undefined;
  }
  get invoke(): Backend["invoke"] {
    return this.#can("invoke") ? (method, params, signal) => this.#invoke(method, params, signal) : undefined;
  }

  async probe(signal: AbortSignal): Promise<ProbeResult> {
    try {
      const options = { signal, timeoutMs: MODELS_TIMEOUT_MS };
      this.#discovered = readModels(await this.#call("Engine.Models", {}, options));
    } catch (error) {
      // 501: the engine does not list its models; then only the registered ones are served.
      if (!(error instanceof BackendError && error.status === 501)) return probeFailure(error);
    }
    const discovered = new Set(this.#discovered.map(({ id }) => id));
    const others = this.config.models.filter((id) => !discovered.has(id));
    return { state: "Healthy", models: [...this.#discovered, ...others.map((id) => ({ id }))] };
  }

  close(): void {
    this.#client.close();
  }

  async #chat({ model, body, stream, requestId, signal }: ChatCall): Promise<Answer> {
    const { ids, clock } = this.deps;
    const params = toChatParams(body.object(), model);
    const identity = chatIdentity({ requestId, model, nowMs: clock.now() });
    if (stream && this.#identity?.streams !== false) {
      const events = await this.#on(signal, (connection) =>
        openChatStream({ connection, table: this.#streams, streamId: ids.uuid(), params, identity, signal }),
      );
      return eventAnswer(events, signal);
    }
    const completion = readCompletion(await this.#call("Engine.Chat", params, { signal }));
    if (!stream) return jsonAnswer(completionBody(identity, completion), signal);
    const events = new ChatEvents(identity);
    const whole = events.delta(completion.message) + events.end(completion.finishReason, completion.usage);
    return eventAnswer(new Blob([whole]).stream(), signal);
  }

  async #embed(call: ModelCall): Promise<Answer> {
    const { model, body, signal } = call;
    const { encoding_format: _, ...rest } = body.object();
    const texts = inputTexts(rest);
    const params = { ...rest, model, input: texts };
    const answer = await this.#call("Engine.Embeddings", params, { signal });
    return embeddingsAnswer({ texts, ...readEmbeddings(answer) }, call);
  }

  async #invoke(method: string, params: Record<string, unknown> | undefined, signal: AbortSignal) {
    if (method.startsWith(ENGINE_METHOD_PREFIX))
      throw new BackendError(
        "unsupported",
        `\`method\` may not begin with ${ENGINE_METHOD_PREFIX}: those belong to the gateway itself`,
      );
    try {
      return await this.#client.call(method, params, { signal, timeoutMs: INVOKE_TIMEOUT_MS });
    } catch (error) {
      throw toBackendError(error);
    }
  }

  #call(
    method: string,
    params: Record<string, unknown>,
    options: { signal: AbortSignal; timeoutMs?: number },
  ): Promise<unknown> {
    return this.#on(options.signal, (connection) => connection.call(method, params, options));
  }

  /** After an error the next call opens a new connection; calls in flight still finish on the old one. */
  async #on<T>(signal: AbortSignal, exchange: (connection: RpcConnection) => Promise<T>): Promise<T> {
    let connection: RpcConnection;
    try {
      connection = await this.#client.connection(signal);
    } catch (error) {
      throw toBackendError(error);
    }
    try {
      return await exchange(connection);
    } catch (error) {
      if (!signal.aborted && !isMethodNotFound(error)) connection.retire();
      throw toBackendError(error);
    }
  }

  #receive(method: string, params: Record<string, unknown>): void {
    if (method === "Engine.ChatChunk") this.#streams.get(String(params.stream_id))?.(params);
    else if (method === "Engine.RealtimeEvent" && isObject(params.event))
      this.#sessions.get(String(params.session_id))?.onEvent(params.event);
    else if (method === "Engine.RealtimeStop")
      this.#sessions.get(String(params.session_id))?.onStop("the engine ended the session");
  }
}

/** The engine lacks an optional method; its connection is fine. */
const isMethodNotFound = (error: unknown): boolean =>
  error instanceof RpcAnswerError && error.code === METHOD_NOT_FOUND;

const ENGINE_VOICE = [...VOICE_SETTINGS, ...OPENAI_VOICE_SETTINGS];

export const engine: BackendKind = {
  kind: "engine",
  label: "Engine (WebSocket)",
  speaks: "the engine protocol",
  types: [{ name: "candle" }, { name: "native" }],
  schemes: ["ws:", "wss:"],
  capabilities: ENGINE_CAPABILITIES,
  modelSources: ["discovered", "static"],
  isOwn: () => true,
  known: { "engine, clips": ENGINE_CLIP, "engine, voice": ENGINE_VOICE },
  fields: [addressField("ws://localhost:9000"), NAME_FIELD, KEY_FIELD, modelsField({ listed: true })],
  create: (config, deps) => new Engine(config, deps),
};

/** The HTTP status for a JSON-RPC error, so that routing can treat both the same. */
function statusOf({ code, data }: RpcAnswerError): number {
  const status = isObject(data) ? data.status : undefined;
  if (typeof status === "number" && status >= 400 && status <= 599) return status;
  if (code === -32602 || code === -32600) return 400;
  return code === METHOD_NOT_FOUND ? 501 : 500;
}

function toBackendError(error: unknown): unknown {
  if (error instanceof RpcAnswerError) {
    return new BackendError("upstream", `${error.message} (code ${error.code})`, statusOf(error));
  }
  if (error instanceof RpcSocketError) {
    const isSent = error.reason === "lost" || error.reason === "timeout";
    return new BackendError(isSent ? "transport" : error.reason, error.message);
  }
  return error;
}
