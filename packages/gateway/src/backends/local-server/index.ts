import { isObject, membersOf } from "../../kernel/json.ts";
import {
  type Answer,
  BackendError,
  type BackendKind,
  type CapabilityName,
  type ChatCall,
  type ModelCall,
  type ModelInfo,
} from "../contract.ts";
import { copied } from "../dialects/chat-turns.ts";
import { dialects } from "../dialects/index.ts";
import { translatedChat } from "../dialects/translate.ts";
import { nativeOf } from "../external/native.ts";
import { embeddingsAnswer, inputTexts } from "../shared/embeddings.ts";
import { addressField, KEY_FIELD, NAME_FIELD } from "../shared/form.ts";
import { Keys } from "../shared/keys.ts";
import { boundedModels, declares, probeFailure } from "../shared/probe.ts";
import { fetchUpstream, ResponseAnswer, readJson } from "../shared/upstream-http.ts";
import { ollama } from "./chat.ts";

/** Older servers embed one text per request. */
const LEGACY_INPUTS_MAX = 256;

/** All of them become `options.num_predict`. */
const LIMIT_FIELDS = ["max_tokens", "max_completion_tokens", "num_predict", "options.num_predict"] as const;

const create: BackendKind["create"] = (config, deps) => {
  const base = config.url.replace(/\/+$/, "");
  const headers: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
  if (config.apiKey) headers.authorization = `Bearer ${config.apiKey}`;
  const post = (path: string, body: unknown, signal: AbortSignal): Promise<Response> =>
    fetchUpstream(deps.fetch, { url: base + path, headers, signal, body: JSON.stringify(body) });
  let isOlder = false;

  async function embedAll(request: ReturnType<typeof toOllamaEmbed>, signal: AbortSignal) {
    if (!isOlder) {
      try {
        return fromOllamaEmbed(await readJson(await post("/api/embed", request, signal), signal));
      } catch (error) {
        // Older servers only have /api/embeddings. A 404 that mentions the model means that the model is missing.
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
    ...(declares(config, "chat") && { chat }),
    ...(declares(config, "embeddings") && { embed }),
    /** By the server's paths for OpenAI clients. */
    post: async (path, { body, signal }) =>
      new ResponseAnswer(await post(`/v1${path}`, body.object(), signal), signal),
    /** Listing the models costs no tokens and loads none. */
    async probe(signal) {
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
};

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

const CAPABILITIES: ReadonlyMap<unknown, CapabilityName> = new Map([
  ["completion", "chat"],
  ["embedding", "embeddings"],
]);

/** Models without reported capabilities get none here, which means unknown. */
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

type OllamaBody = Record<string, unknown>;

export const toOllamaEmbed = (body: OllamaBody, model: string): OllamaBody & { input: string[] } => ({
  ...copied(body, PASSED_FIELDS),
  model,
  input: inputTexts(body),
});

const isVector = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((item) => typeof item === "number");

/** Reads `{embeddings}`, or `{embedding}` of the older path. */
export function fromOllamaEmbed(answer: unknown): { vectors: number[][]; promptTokens: number } {
  const body = membersOf(answer);
  const vectors = body.embeddings ?? [body.embedding];
  if (!Array.isArray(vectors) || !vectors.every(isVector))
    throw new BackendError("transport", "the upstream answered without embeddings");
  return { vectors, promptTokens: Number(body.prompt_eval_count ?? 0) };
}
