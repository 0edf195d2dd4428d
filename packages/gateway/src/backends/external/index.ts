import { shownUrl } from "../../kernel/shown-address.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  type ChatCall,
  clientFailure,
  type ModelCall,
  type ModelInfo,
  POSTED_CAPABILITIES,
  type PostCall,
  type ProbeResult,
} from "../contract.ts";
import { limitFieldsFor } from "../dialects/chat/limit-fields.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { geminiEmbedRequest, geminiVectors } from "../dialects/gemini/embeddings.ts";
import { dialects, dialectsOf } from "../dialects/index.ts";
import { KeptAnswers } from "../dialects/kept-answers.ts";
import { isForResponsesOnly } from "../dialects/responses/only.ts";
import { translatedChat } from "../dialects/translate.ts";
import { declares } from "../shared/capabilities.ts";
import { embeddingsBody, encodingOf } from "../shared/embedding-encoding.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { probeFailure } from "../shared/probe.ts";
import { ResponseAnswer } from "../shared/response-answer.ts";
import { fetchUpstream, readJson, upstreamError } from "../shared/upstream-http.ts";
import { wholeBody } from "../shared/whole-body.ts";
import { JSON_HEADERS, nativeOf } from "./native.ts";

const LISTING_BYTES_MAX = 8 * 1024 * 1024;
const LISTING_PAGES_MAX = 20;
/** Statuses of an API that is alive but does not list its models, or not right now. */
const NO_LISTING = new Set([404, 405, 429, 501]);

/** An HTTP API in one or more dialects. Chat completions is the gateway's own, so those bodies pass as bytes. */
function create(config: BackendConfig, deps: BackendDeps): Backend {
  const { fetch, openOrigin } = deps;
  const spoken = dialectsOf(config);
  const own = dialects[spoken[0]!];
  const base = own.base(config.url);
  const headersFor = (dialect: Dialect): Record<string, string> => ({
    ...JSON_HEADERS,
    ...dialect.headers(config.apiKey),
  });
  const headers = headersFor(own);

  // TLS, proxies and tunnels are left to `fetch`.
  const origin =
    openOrigin && URL.parse(base)?.protocol === "http:"
      ? openOrigin({
          url: base,
          headers,
          failure: clientFailure,
          errorOf: (answer) => upstreamError(answer),
        })
      : null;

  const overFetch = async (url: string, { body, signal, contentType }: PostCall): Promise<Answer> => {
    const sent = contentType ? { ...headers, "content-type": contentType, accept: "*/*" } : headers;
    const content = body.form?.() ?? body.bytes();
    const response = await fetchUpstream(fetch, { url, headers: sent, signal, body: content });
    return new ResponseAnswer(response, signal);
  };

  const poster = (url: string): ((call: ModelCall) => Promise<Answer>) => {
    if (!origin) return (call) => overFetch(url, call);
    const { pathname, search } = new URL(url);
    const path = pathname + search;
    return (call) => origin.post(path, call.body.bytes(), call);
  };

  const kept = new KeptAnswers(deps.clock);
  const translatedBy =
    (dialect: Dialect) =>
    async (call: ChatCall): Promise<Answer> => {
      const options = { dialect, base: dialect.base(config.url), headers: headersFor(dialect), deps, kept };
      return new ResponseAnswer(await translatedChat(options, call), call.signal);
    };
  const postChat = own.translation
    ? translatedBy(own)
    : poster(base + own.path({ model: "", stream: false }));
  const postResponses = spoken.includes("responses") ? translatedBy(dialects.responses) : null;
  const chat: Backend["chat"] = postResponses
    ? (call) => (isForResponsesOnly(call.model, call.body) ? postResponses(call) : postChat(call))
    : postChat;

  const native = new Map(spoken.flatMap((name) => nativeOf(dialects[name], { config, deps })));

  // Half a megabyte of numbers is buffered by the runtime outside our heap and freed at once.
  const postEmbeddings = (call: ModelCall) => overFetch(`${base}/embeddings`, call);
  const embedInGemini = async ({ model, body, signal }: ModelCall): Promise<Answer> => {
    const wanted = body.object();
    const url = `${base}/models/${encodeURIComponent(model)}:batchEmbedContents`;
    const request = JSON.stringify(geminiEmbedRequest(wanted, model));
    const vectors = geminiVectors(
      await readJson(await fetchUpstream(fetch, { url, headers, signal, body: request }), signal),
    );
    const encoding = encodingOf(wanted);
    const answer = Response.json(embeddingsBody({ model, vectors, promptTokens: 0, encoding }));
    return new ResponseAnswer(answer, signal);
  };
  const embed = own.name === "gemini" ? embedInGemini : own.name === "messages" ? null : postEmbeddings;
  const isConvention = own.name === "chat" || own.name === "responses";
  const post = (path: string, call: PostCall) =>
    call.contentType ? overFetch(base + path, call) : poster(base + path)(call);
  return {
    config,
    ...(isConvention && {
      post,
      posts: POSTED_CAPABILITIES.filter((capability) => declares(config, capability)),
    }),
    ...(declares(config, "chat") && { chat, native }),
    ...(embed && declares(config, "embeddings") && { embed }),
    probe: (signal) => probe({ config, fetch, dialect: own, base, headers, signal }),
    close() {
      origin?.close();
      for (const dialect of native.values()) dialect.close();
    },
  };
}

/** Listing the models costs no tokens; an API without a listing is alive when it answers at all. */
async function probe({
  config,
  fetch,
  dialect: { listing },
  base,
  headers,
  signal,
}: {
  config: BackendConfig;
  fetch: BackendDeps["fetch"];
  dialect: Dialect;
  base: string;
  headers: Record<string, string>;
  signal: AbortSignal;
}): Promise<ProbeResult> {
  const url = base + listing.path.replace(/\?.*/, "");
  try {
    const models: ModelInfo[] = [];
    let path: string | null = listing.path;
    for (let pages = 0; path !== null && pages < LISTING_PAGES_MAX; pages++) {
      const body = await listed(await fetchUpstream(fetch, { url: base + path, headers, signal }));
      const page = listing.models(body);
      if (!page)
        return {
          state: "Degraded",
          models: [],
          detail: `${shownUrl(url)} answered with something that is no model list`,
        };
      models.push(...page);
      path = listing.next?.(body) ?? null;
    }
    return { state: "Healthy", models };
  } catch (error) {
    const alive = error instanceof BackendError && error.status !== undefined && NO_LISTING.has(error.status);
    if (!alive) return probeFailure(error);
    if (config.models.length > 0) return { state: "Healthy", models: [] };
    return {
      state: "Degraded",
      models: [],
      detail: `${shownUrl(url)} lists no models (${error.status}); register the backend with \`models\``,
    };
  }
}

async function listed(response: Response): Promise<unknown> {
  const whole = await wholeBody(response, LISTING_BYTES_MAX);
  try {
    return whole && JSON.parse(whole.toString());
  } catch {
    return null;
  }
}

export const external: BackendKind = {
  kind: "external",
  label: "Any server or service with a chat API",
  speaks: "chat completions, Responses, Messages or Gemini, by its host or its `dialects`",
  types: [
    { name: "llama_cpp", label: "llama.cpp", local: { id: "llama-cpp", label: "llama.cpp", port: 8080 } },
    { name: "vllm", label: "vLLM", local: { id: "vllm", label: "vLLM", port: 8000 } },
    { name: "sglang", label: "SGLang", local: { id: "sglang", label: "SGLang", port: 30000 } },
    { name: "lmstudio", label: "LM Studio", local: { id: "lm-studio", label: "LM Studio", port: 1234 } },
    { name: "tgi" },
    { name: "cloud" },
    { name: "external_api" },
  ],
  schemes: ["http:", "https:"],
  capabilities: ["chat", "embeddings", ...POSTED_CAPABILITIES],
  modelSources: ["static", "discovered"],
  limitFields: limitFieldsFor,
  fields: [addressField("http://localhost:8000"), NAME_FIELD, KEY_FIELD, modelsField({ listed: true })],
  create,
};
