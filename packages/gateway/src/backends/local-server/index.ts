import { isObject } from "../../kernel/json.ts";
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
import { dialects } from "../dialects/index.ts";
import { translatedChat } from "../dialects/translate.ts";
import { nativeOf } from "../external/native.ts";
import { embeddingsAnswer, inputTexts } from "../shared/embeddings.ts";
import { addressField, KEY_FIELD, NAME_FIELD } from "../shared/form.ts";
import { Keys } from "../shared/keys.ts";
import { boundedModels, declares, probeFailure } from "../shared/probe.ts";
import { ResponseAnswer } from "../shared/response-answer.ts";
import { fetchUpstream, readJson } from "../shared/upstream-http.ts";
import { ollama } from "./chat.ts";

/** Inputs that are embedded one by one on servers without the path that takes many. */
const LEGACY_INPUTS_MAX = 256;

/** All of them become `options.num_predict`. */
const LIMIT_FIELDS = ["max_tokens", "max_completion_tokens", "num_predict", "options.num_predict"] as const;

/** A model server by its native API: Ollama's paths, JSON lines and object arguments. */
function create(config: BackendConfig, deps: BackendDeps): Backend {
  const base = config.url.replace(/\/+$/, "");
  const headers: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
  if (config.apiKey) headers.authorization = `Bearer ${config.apiKey}`;
  const post = (path: string, body: unknown, signal: AbortSignal): Promise<Response> =>
    fetchUpstream(deps.fetch, { url: base + path, headers, signal, body: JSON.stringify(body) });
  let isOlder = false;

  async function embedAll(request: OllamaEmbedRequest, signal: AbortSignal) {
    if (!isOlder) {
      try {
        return fromOllamaEmbed(await readJson(await post("/api/embed", request, signal), signal));
      } catch (error) {
        // An older server knows only /api/embeddings; a missing model is a 404 that names the model.
        isOlder = error instanceof BackendError && error.status === 404 && !/model/i.test(error.detail);
        if (!isOlder) throw error;
      }
    }
    const { input, ...rest } = request;
    if (input.length > LEGACY_INPUTS_MAX)
      throw new BackendError(
        "request",
        `\`input\` may have at most ${LEGACY_INPUTS_MAX} texts on this server`,
      );
    const vectors: number[][] = [];
    for (const prompt of input) {
      const answer = await post("/api/embeddings", { ...rest, prompt }, signal);
      vectors.push(...fromOllamaEmbed(await readJson(answer, signal)).vectors);
    }
    return { vectors, promptTokens: 0 };
  }

  async function embed(call: ModelCall): Promise<Answer> {
    const request = toOllamaEmbed(call.body.object(), call.model);
    return embeddingsAnswer({ texts: request.input, ...(await embedAll(request, call.signal)) }, call);
  }

  const chat = (call: ChatCall): Promise<Answer> =>
    translatedChat({ translation: ollama, url: `${base}/api/chat`, headers, deps, form: "lines" }, call);
  const keys = new Keys(config, deps);
  const native = new Map(
    (config.dialects ?? []).flatMap((name) => nativeOf(dialects[name], { config, deps, keys })),
  );
  return {
    config,
    writesOne: true,
    native,
    // Without an operator's list both are offered, and each model's own abilities decide.
    ...(declares(config, "chat") && { chat }),
    ...(declares(config, "embeddings") && { embed }),
    /** The server has the paths of the chat-completions convention, too; the native API has no word for some of them. */
    post: async (path, { body, signal }) =>
      new ResponseAnswer(await post(`/v1${path}`, body.object(), signal), signal),
    /** The tag listing costs no tokens and loads no model. */
    async probe(signal): Promise<ProbeResult> {
      try {
        const answer = await fetchUpstream(deps.fetch, { url: `${base}/api/tags`, headers, signal });
        return { state: "Healthy", models: modelsOfTags(await readJson(answer, signal)) };
      } catch (error) {
        return probeFailure(error);
      }
    },
    close() {
      for (const dialect of native.values()) dialect.close();
    },
  };
}

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
  create,
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
  const request: OllamaEmbedRequest = { model, input: inputTexts(body) };
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
