import { shownUrl } from "../../kernel/shown-address.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  clientFailure,
  type ModelCall,
  POSTED_CAPABILITIES,
  type PostCall,
  type ProbeResult,
} from "../contract.ts";
import { declares } from "../shared/capabilities.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { probeFailure } from "../shared/probe.ts";
import { ResponseAnswer } from "../shared/response-answer.ts";
import { callUpstream, fetchUpstream, upstreamError } from "../shared/upstream-http.ts";
import { wholeBody } from "../shared/whole-body.ts";
import { apiBase } from "./base-url.ts";
import { limitFieldsFor } from "./limit-fields.ts";
import { modelsOfListing } from "./models.ts";

const LISTING_BYTES_MAX = 8 * 1024 * 1024;
/** Statuses of an API that is alive but does not list its models, or not right now. */
const NO_LISTING = new Set([404, 405, 429, 501]);

/** A chat-compatible HTTP API: its wire format is the gateway's own, so bodies pass as bytes. */
function create(config: BackendConfig, { fetch, openOrigin }: BackendDeps): Backend {
  const base = apiBase(config.url);
  const headers: Record<string, string> = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    // Compressed chunks would wait for each other, and inflating costs more than the loopback or LAN saves.
    "accept-encoding": "identity",
  };
  if (config.apiKey) headers.authorization = `Bearer ${config.apiKey}`;

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
    const { apiKey } = config;
    const sent = contentType ? { ...headers, "content-type": contentType, accept: "*/*" } : headers;
    const content = body.form?.() ?? body.bytes();
    const response = await fetchUpstream(fetch, { url, apiKey, headers: sent, signal, body: content });
    return new ResponseAnswer(response, signal);
  };

  const poster = (url: string): ((call: ModelCall) => Promise<Answer>) => {
    if (!origin) return (call) => overFetch(url, call);
    const { pathname, search } = new URL(url);
    const path = pathname + search;
    return (call) => origin.post(path, call.body.bytes(), call);
  };
  const postChat = poster(`${base}/chat/completions`);
  // Half a megabyte of numbers is buffered by the runtime outside our heap and freed at once.
  const postEmbeddings = (call: ModelCall) => overFetch(`${base}/embeddings`, call);
  const post = (path: string, call: PostCall) =>
    call.contentType ? overFetch(base + path, call) : poster(base + path)(call);
  return {
    config,
    post,
    posts: POSTED_CAPABILITIES.filter((capability) => declares(config, capability)),
    ...(declares(config, "chat") && { chat: postChat }),
    ...(declares(config, "embeddings") && { embed: postEmbeddings }),
    probe: (signal) => probe({ config, fetch, url: `${base}/models`, signal }),
    close: () => origin?.close(),
  };
}

/** Listing the models costs no tokens; an API without a listing is alive when it answers at all. */
async function probe({
  config,
  fetch,
  url,
  signal,
}: {
  config: BackendConfig;
  fetch: BackendDeps["fetch"];
  url: string;
  signal: AbortSignal;
}): Promise<ProbeResult> {
  try {
    const response = await callUpstream(fetch, { url, apiKey: config.apiKey, signal });
    const models = modelsOfListing(await listing(response));
    if (models) return { state: "Healthy", models };
    return {
      state: "Degraded",
      models: [],
      detail: `${shownUrl(url)} answered with something that is no model list`,
    };
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

async function listing(response: Response): Promise<unknown> {
  const whole = await wholeBody(response, LISTING_BYTES_MAX);
  try {
    return whole && JSON.parse(whole.toString());
  } catch {
    return null;
  }
}

export const external: BackendKind = {
  kind: "external",
  label: "Any chat-completions server or service",
  speaks: "the chat-completions REST convention",
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
