import { jsonIn } from "../../kernel/json.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  BackendError,
  type BackendKind,
  type ChatCall,
  DIALECTS,
  type ModelCall,
  type ModelInfo,
  ownChat,
  POSTED_CAPABILITIES,
  type PostCall,
  type ProbeResult,
} from "../contract.ts";
import { type Dialect, modelsOfListing } from "../dialects/dialect.ts";
import { geminiVectors } from "../dialects/gemini/answer.ts";
import { geminiEmbedRequest } from "../dialects/gemini/request.ts";
import { dialects, dialectsOf, limitFieldsFor } from "../dialects/index.ts";
import { KeptAnswers } from "../dialects/kept-answers.ts";
import { isForResponses, OUTPUT_TOKENS_MIN } from "../dialects/responses/request.ts";
import { translatedChat } from "../dialects/translate.ts";
import { embeddingsAnswer, inputTexts } from "../shared/embeddings.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD, SETTING_FIELDS } from "../shared/form.ts";
import { Keys } from "../shared/keys.ts";
import { declares, probeFailure } from "../shared/probe.ts";
import { fetchUpstream, ResponseAnswer, readJson, wholeBody } from "../shared/upstream-http.ts";
import { fieldChange, headersFor, JSON_HEADERS, nativeOf, originAt, sentBody } from "./native.ts";

const LISTING_BYTES_MAX = 8 * 1024 * 1024;
const LISTING_PAGES_MAX = 20;
const OWN_TYPES = new Set(["llama_cpp", "vllm", "sglang", "lmstudio", "tgi"]);
/** Statuses of an API that works but does not list its models, or not right now. */
const NO_LISTING = new Set([404, 405, 429, 501]);
const NOT_ALLOWED = new Set([401, 403]);
const INCOMPLETE = new Set([400, 422]);

/** An HTTP API in one or more dialects. Bodies of chat completions are passed on as bytes. */
const create: BackendKind["create"] = (config, deps) => {
  const { fetch } = deps;
  const spoken = dialectsOf(config);
  const own = dialects[spoken[0]!];
  const base = own.base(config.url);
  const keys = new Keys(config, deps);
  const headersWith = (key: string | null) => ({ ...JSON_HEADERS, ...headersFor(own, config, { key }) });
  const sent = sentBody(config);

  const origin = originAt(new URL(base), deps, keys.isFixed ? headersWith(keys.fixed) : JSON_HEADERS);

  const overFetch = (url: string, { body, signal, session, contentType }: PostCall): Promise<Answer> =>
    keys.use(session, async (key) => {
      const headers = headersWith(key);
      const typed = contentType ? { ...headers, "content-type": contentType, accept: "*/*" } : headers;
      const content = body.form?.() ?? sent(body).bytes();
      const response = await fetchUpstream(fetch, { url, headers: typed, signal, body: content });
      return new ResponseAnswer(response, signal);
    });

  const poster = (url: string): ((call: ModelCall) => Promise<Answer>) => {
    if (!origin) return (call) => overFetch(url, call);
    const { pathname, search } = new URL(url);
    const path = pathname + search;
    if (keys.isFixed) return (call) => origin.post(path, sent(call.body).bytes(), call);
    return (call) =>
      keys.use(call.session, (key) =>
        origin.post(path, sent(call.body).bytes(), call, headersFor(own, config, { key })),
      );
  };

  const kept = new KeptAnswers(deps.clock);
  const change = fieldChange(config);
  const translatedBy = (dialect: Dialect) => (call: ChatCall) =>
    keys.use(call.session, (key): Promise<Answer> => {
      const headers = { ...JSON_HEADERS, ...headersFor(dialect, config, { key }) };
      const url = dialect.base(config.url) + dialect.path(call);
      return translatedChat({ translation: dialect.translation!, url, headers, deps, kept, change }, call);
    });
  const postChat = own.translation
    ? translatedBy(own)
    : poster(base + own.path({ model: "", stream: false }));
  const postResponses = spoken.includes("responses") ? translatedBy(dialects.responses) : null;
  const chat: Backend["chat"] = postResponses
    ? (call) => (isForResponses(call.model, call.body) ? postResponses(call) : postChat(call))
    : postChat;

  const limitMin: Backend["limitMin"] = (model, body) =>
    own.name === "responses" || (postResponses && isForResponses(model, body)) ? OUTPUT_TOKENS_MIN : 0;

  const native = new Map(spoken.flatMap((name) => nativeOf(dialects[name], { config, deps, keys })));

  // By `fetch`: it buffers large answers outside our heap and frees them at once.
  const postEmbeddings = (call: ModelCall) => overFetch(`${base}/embeddings`, call);
  const embedInGemini = async (call: ModelCall): Promise<Answer> => {
    const { model, body, signal, session } = call;
    const { dimensions, ...wanted } = body.object();
    const texts = inputTexts(wanted);
    const url = `${base}/models/${encodeURIComponent(model)}:batchEmbedContents`;
    const request = JSON.stringify(geminiEmbedRequest(texts, { model, dimensions }));
    const answer = await keys.use(session, (key) =>
      fetchUpstream(fetch, { url, headers: headersWith(key), signal, body: request }),
    );
    const vectors = geminiVectors(await readJson(answer, signal));
    return embeddingsAnswer({ texts, vectors, promptTokens: 0 }, call);
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
    ...(declares(config, "chat") && {
      chat,
      native,
      limitMin,
      usualOutputTokens: own.translation?.usualOutputTokens,
    }),
    ...(embed && declares(config, "embeddings") && { embed }),
    keys,
    async probe(signal) {
      const listWith = (key: string | null) =>
        listed(own, base, (url) => fetchUpstream(fetch, { url, headers: headersWith(key), signal }));
      try {
        return await keys.use(undefined, listWith, { isListing: true });
      } catch (error) {
        // A chat without messages costs nothing: a server that accepts the key refuses it as incomplete.
        return unlisted(error, base, config, (model) => postChat(ownChat({ model, messages: [] }, signal)));
      }
    },
    close() {
      keys.close();
      origin?.close();
      for (const dialect of native.values()) dialect.close();
    },
  };
};

async function listed(
  { listing }: Dialect,
  base: string,
  get: (url: string) => Promise<Response>,
): Promise<ProbeResult> {
  const models: ModelInfo[] = [];
  let path: string | null = listing.path;
  for (let pages = 0; path !== null && pages < LISTING_PAGES_MAX; pages++) {
    const whole = await wholeBody(await get(base + path), LISTING_BYTES_MAX);
    const body = whole && jsonIn(whole.toString());
    const page = modelsOfListing(body);
    if (!page) {
      const url = shownUrl(base + listing.path.replace(/\?.*/, ""));
      const detail = `${url} answered with something that is no model list`;
      return { state: "Degraded", models: [], detail };
    }
    models.push(...page);
    path = listing.next?.(body) ?? null;
  }
  return { state: "Healthy", models };
}

/** An API without a listing, or whose listing the key may not see, is healthy if it takes chats. */
async function unlisted(
  error: unknown,
  base: string,
  { models }: BackendConfig,
  chat: (model: string) => Promise<Answer>,
): Promise<ProbeResult> {
  const status = (error instanceof BackendError && error.status) || 0;
  const isAlive =
    NO_LISTING.has(status) ||
    (NOT_ALLOWED.has(status) && models[0] !== undefined && (await takesChats(() => chat(models[0]!))));
  if (!isAlive) return probeFailure(error);
  const detail = `${shownUrl(base)} lists no models (${status})`;
  if (models.length > 0) return { state: "Healthy", models: [], detail };
  return { state: "Degraded", models: [], detail: `${detail}; register the backend with \`models\`` };
}

async function takesChats(chat: () => Promise<Answer>): Promise<boolean> {
  try {
    await (await chat()).bytes(LISTING_BYTES_MAX);
    return true;
  } catch (error) {
    return error instanceof BackendError && INCOMPLETE.has(error.status ?? 0);
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
  isOwn: ({ type }) => OWN_TYPES.has(type),
  dialects: DIALECTS,
  takesSettings: true,
  fields: [
    addressField("http://localhost:8000"),
    NAME_FIELD,
    { ...KEY_FIELD, hint: "Several, with commas between, are used in turn; never shown again" },
    modelsField({ listed: true }),
    ...SETTING_FIELDS,
  ],
  create,
};
