import { isObject } from "../../kernel/json.ts";
import {
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
import { dialects } from "../dialects/index.ts";
import { nativeOf } from "../external/native.ts";
import { chatIdentity, eventStream } from "../shared/chat-events.ts";
import { convertedStream } from "../shared/converted-stream.ts";
import { embeddingsBody, encodingOf, inputTexts } from "../shared/embedding-encoding.ts";
import { addressField, KEY_FIELD, NAME_FIELD } from "../shared/form.ts";
import { Keys } from "../shared/keys.ts";
import { boundedModels, declares, probeFailure } from "../shared/probe.ts";
import { answering, type ResponseBackend } from "../shared/response-answer.ts";
import { callUpstream, readJson } from "../shared/upstream-http.ts";
import { ChatLineConverter, errorOf, toCompletion } from "./chat-answer.ts";
import { toOllamaChat } from "./chat-request.ts";
import { JsonLines } from "./ndjson.ts";

/** Inputs that are embedded one by one on servers without the path that takes many. */
const LEGACY_INPUTS_MAX = 256;

/** All of them become `options.num_predict`. */
const LIMIT_FIELDS = ["max_tokens", "max_completion_tokens", "num_predict", "options.num_predict"] as const;

/** A model server by its native API: Ollama's paths, JSON lines and object arguments. */
class LocalServer implements ResponseBackend {
  readonly #base: string;
  #legacyEmbeddings = false;

  constructor(
    readonly config: BackendConfig,
    readonly deps: BackendDeps,
  ) {
    this.#base = config.url.replace(/\/+$/, "");
  }

  // Without an operator's list both are offered, and each model's own abilities decide.
  get chat(): ResponseBackend["chat"] {
    return declares(this.config, "chat") ? (call) => this.#chat(call) : undefined;
  }
  get embed(): ResponseBackend["embed"] {
    return declares(this.config, "embeddings") ? (call) => this.#embed(call) : undefined;
  }

  /** The server has the paths of the chat-completions convention, too; the native API has no word for some of them. */
  post(path: string, { body, signal }: ModelCall): Promise<Response> {
    return this.#post(`/v1${path}`, body.object(), signal);
  }

  async #chat({ model, body, stream, requestId, signal }: ChatCall): Promise<Response> {
    const { ids, clock } = this.deps;
    const leaving = new AbortController();
    const either = AbortSignal.any([signal, leaving.signal]);
    const answer = await this.#post("/api/chat", toOllamaChat(body.object(), { model, stream }), either);
    const identity = chatIdentity({ requestId, model, nowMs: clock.now() });
    if (!stream) {
      const line = await readJson(answer, signal);
      const error = isObject(line) ? errorOf(line) : null;
      if (error !== null) throw new BackendError("upstream", error, 500);
      if (!isObject(line) || !isObject(line.message))
        throw new BackendError("transport", "the upstream answered without a message");
      return Response.json(toCompletion(line, { identity, ids }));
    }
    const events = await convertedStream({
      body: answer.body!,
      objects: new JsonLines(),
      converter: new ChatLineConverter({ identity, ids }),
      signal,
      abortUpstream: () => leaving.abort(),
    });
    return eventStream(events);
  }

  async #embed({ model, body, signal }: ModelCall): Promise<Response> {
    const wanted = body.object();
    const request = toOllamaEmbed(wanted, model);
    const { vectors, promptTokens } = await this.#embedAll(request, signal);
    if (vectors.length !== request.input.length) {
      throw new BackendError(
        "transport",
        `the upstream answered ${vectors.length} embeddings for ${request.input.length} inputs`,
      );
    }
    return Response.json(embeddingsBody({ model, vectors, promptTokens, encoding: encodingOf(wanted) }));
  }

  async #embedAll(request: ReturnType<typeof toOllamaEmbed>, signal: AbortSignal) {
    if (!this.#legacyEmbeddings) {
      try {
        return fromOllamaEmbed(await readJson(await this.#post("/api/embed", request, signal), signal));
      } catch (error) {
        // An older server knows only /api/embeddings; a missing model is a 404 that names the model.
        const isMissingPath =
          error instanceof BackendError && error.status === 404 && !/model/i.test(error.detail);
        if (!isMissingPath) throw error;
        this.#legacyEmbeddings = true;
      }
    }
    const { input, ...rest } = request;
    if (input.length > LEGACY_INPUTS_MAX) {
      throw new BackendError(
        "request",
        `\`input\` may have at most ${LEGACY_INPUTS_MAX} texts on this server`,
      );
    }
    const vectors: number[][] = [];
    for (const prompt of input) {
      const answer = await this.#post("/api/embeddings", { ...rest, prompt }, signal);
      vectors.push(...fromOllamaEmbed(await readJson(answer, signal)).vectors);
    }
    return { vectors, promptTokens: 0 };
  }

  /** The tag listing costs no tokens and loads no model. */
  async probe(signal: AbortSignal): Promise<ProbeResult> {
    const { apiKey } = this.config;
    try {
      const answer = await callUpstream(this.deps.fetch, { url: `${this.#base}/api/tags`, apiKey, signal });
      return { state: "Healthy", models: modelsOfTags(await readJson(answer, signal)) };
    } catch (error) {
      return probeFailure(error);
    }
  }

  close(): void {}

  #post(path: string, body: unknown, signal: AbortSignal): Promise<Response> {
    const { apiKey } = this.config;
    return callUpstream(this.deps.fetch, { url: `${this.#base}${path}`, apiKey, signal, body });
  }
}

export const create = (config: BackendConfig, deps: BackendDeps): ResponseBackend =>
  new LocalServer(config, deps);

export const localServer: BackendKind = {
  kind: "local-server",
  label: "Ollama (native API, discovers its models)",
  speaks: "Ollama's native API",
  types: [{ name: "ollama", local: { id: "ollama", label: "Ollama", port: 11434 } }, { name: "ollama-like" }],
  schemes: ["http:", "https:"],
  capabilities: ["chat", "embeddings"],
  modelSources: ["discovered"],
  limitFields: () => () => LIMIT_FIELDS,
  isOwn: () => true,
  fields: [addressField("http://localhost:11434"), NAME_FIELD, KEY_FIELD],
  dialects: ["chat", "responses", "messages"],
  create: (config, deps) => {
    const keys = new Keys(config, deps);
    const native = new Map(
      (config.dialects ?? []).flatMap((name) => nativeOf(dialects[name], { config, deps, keys })),
    );
    const close = () => {
      for (const dialect of native.values()) dialect.close();
    };
    return Object.assign(answering(create(config, deps)), { native, close });
  },
};

/** The server's names for a model's abilities, and ours. */
const CAPABILITIES: ReadonlyMap<unknown, CapabilityName> = new Map([
  ["completion", "chat"],
  ["embedding", "embeddings"],
]);

/** The models of a tag listing. Servers that do not report abilities leave them open. */
export function modelsOfTags(answer: unknown): ModelInfo[] {
  const models = isObject(answer) ? answer.models : undefined;
  // A server without any model says null.
  if (models === null) return [];
  if (!Array.isArray(models)) throw new BackendError("transport", "the tag listing has no models");
  const listed = models.filter(isObject).flatMap(({ name, model, capabilities }) => {
    const id = name ?? model;
    if (typeof id !== "string") return [];
    if (!Array.isArray(capabilities)) return [{ id }];
    return [{ id, capabilities: capabilities.flatMap((ability) => CAPABILITIES.get(ability) ?? []) }];
  });
  return boundedModels(listed);
}

const PASSED_FIELDS = ["truncate", "dimensions", "keep_alive", "options"] as const;

interface OllamaEmbedRequest {
  model: string;
  input: string[];
  [field: string]: unknown;
}

export function toOllamaEmbed(body: Record<string, unknown>, model: string): OllamaEmbedRequest {
  const input = inputTexts(body.input);
  if (!input) {
    throw new BackendError("request", "`input` must be a text or an array of texts for this backend");
  }
  const request: OllamaEmbedRequest = { model, input };
  for (const name of PASSED_FIELDS) if (body[name] !== undefined) request[name] = body[name];
  return request;
}

const isVector = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((item) => typeof item === "number");

/** Vectors and token count of an answer: `{embeddings}` now, `{embedding}` from the older path. */
export function fromOllamaEmbed(answer: unknown): { vectors: number[][]; promptTokens: number } {
  const body = isObject(answer) ? answer : {};
  const vectors = body.embeddings ?? [body.embedding];
  if (!Array.isArray(vectors) || !vectors.every(isVector))
    throw new BackendError("transport", "the upstream answered without embeddings");
  return { vectors, promptTokens: Number(body.prompt_eval_count ?? 0) };
}
