import { type ReceivedRequest, type Reply, startUpstream } from "@model-gateway/testing/upstream.ts";
import { canaryIn, type Flight, type Flights } from "../flights.ts";
import { MODEL_NUMBERS } from "../plot.ts";
import { type Answering, answerChat, newDispatch } from "./chat.ts";
import { answerDialect, type DialectKind } from "./dialects.ts";
import { startEngineUpstream } from "./engine.ts";
import { answerOllama } from "./ollama.ts";
import {
  embeddingInput,
  embeddingTokens,
  modelOf,
  readChat,
  readDialect,
  readOllama,
  readText,
} from "./reading.ts";
import { reporting } from "./usage.ts";
import { isWork, serveWork, WORK_NUMBERS, type WorkTask, workModel } from "./work.ts";

export const CHAT_CLASSES = ["dear", "cheap", "free", "embed"] as const;
/** In front of the model ids of upstreams that do not speak the chat-completions format. */
export const PREFIXES = {
  chat: "",
  ollama: "ollama-",
  engine: "engine-",
  messages: "claude-",
  responses: "codex-",
  gemini: "gemini-",
} as const;
/** Each of the vendors' own APIs is below a path of its own. */
export const DIALECT_KINDS = ["messages", "responses", "gemini"] as const;
const dialectOf = (path: string): DialectKind | null =>
  DIALECT_KINDS.find((kind) => path.startsWith(`/${kind}/`)) ?? null;

export interface EvilUpstream {
  /** Base of the chat-completions API. */
  chatUrl: string;
  ollamaUrl: string;
  engineUrl: string;
  dialectUrl(kind: DialectKind): string;
  /** Work that is under way, by its canary. */
  readonly works: Map<number, WorkTask>;
  readonly openConnections: number;
  stop(): void;
}

const numbers = Array.from({ length: MODEL_NUMBERS }, (_, i) => i);
const workModels = Array.from({ length: WORK_NUMBERS.count }, (_, i) => workModel(WORK_NUMBERS.from + i));
const modelIds = (prefix: string) =>
  CHAT_CLASSES.flatMap((name) => numbers.map((number) => `${prefix}${name}-${number}`));

/**
 * The upstream of the storm: it obeys the limits that it is sent, reads bodies as loosely as the loosest servers
 * do, and otherwise does what the client's plan for the request says. Six wire formats on one port, a seventh on another.
 */
export function startEvilUpstream(flights: Flights): EvilUpstream {
  const works = new Map<number, WorkTask>();
  const upstream = startUpstream({
    handler: async (request, reply) => {
      upstream.requests.length = 0;
      if (isWork(request.path)) return serveWork(works.get(canaryIn(request.text)), request, reply);
      const kind = dialectOf(request.path);
      const model = kind ? readDialect(request.json, request.path).model : modelOf(request.json);
      const flight = flights.find(request.text, model);
      if (!flight) return reply.json({ error: { message: "whose is this?" } }, 400);
      await serve(flight, request, reply);
    },
  });
  const engine = startEngineUpstream(flights, modelIds(PREFIXES.engine));
  upstream.listing(({ path }, reply) => {
    if (path.endsWith("/api/tags"))
      return reply.json({ models: modelIds(PREFIXES.ollama).map((name) => ({ name, model: name })) });
    const kind = dialectOf(path);
    if (kind === "gemini")
      return reply.json({ models: modelIds(PREFIXES.gemini).map((id) => ({ name: `models/${id}` })) });
    if (kind) return reply.json({ data: modelIds(PREFIXES[kind]).map((id) => ({ id })) });
    if (path.endsWith("/api/version")) return reply.json({ version: "0.15.2" });
    return reply.json({
      object: "list",
      data: [...modelIds(PREFIXES.chat), ...workModels].map((id) => ({
        id,
        object: "model",
        created: 0,
        owned_by: "storm",
      })),
    });
  });
  return {
    chatUrl: `${upstream.url}/v1`,
    ollamaUrl: upstream.url,
    engineUrl: engine.url,
    dialectUrl: (kind) => `${upstream.url}/${kind}/${kind === "gemini" ? "v1beta" : "v1"}`,
    works,
    get openConnections() {
      return upstream.connectionCount;
    },
    stop() {
      upstream.stop();
      engine.stop();
    },
  };
}

async function serve(flight: Flight, request: ReceivedRequest, reply: Reply): Promise<void> {
  const { path, json } = request;
  if (path.endsWith("/embeddings") || path.endsWith("/api/embed")) return embed(flight, request, reply);
  const kind = dialectOf(path);
  const isOllama = path.endsWith("/api/chat");
  const isText = !path.endsWith("/chat/completions") && path.endsWith("/completions");
  const readBody = isOllama ? readOllama : isText ? readText : readChat;
  const reading = kind ? readDialect(json, path) : readBody(json);
  const answering: Answering = {
    flight,
    request,
    reply,
    reading,
    isText,
    dispatch: flight.arrive(newDispatch(reading)),
  };
  if (kind) return answerDialect(kind, answering);
  await (isOllama ? answerOllama(answering) : answerChat(answering));
}

async function embed(flight: Flight, request: ReceivedRequest, reply: Reply): Promise<void> {
  const input = embeddingInput(request.json);
  const reading = {
    model: modelOf(request.json),
    promptTokens: embeddingTokens(input),
    choices: 1,
    limit: 0,
  };
  const dispatch = flight.arrive(newDispatch(reading));
  const isClosed = () => request.closedAtMs !== null;
  const { plan } = flight.asked;
  for (const moment of ["dispatch", "piece", "usage"] as const) await flight.waitForLeaving(moment, isClosed);
  if (plan.ending === "refuse" || plan.ending === "fail" || plan.ending === "cut") {
    dispatch.end = "failed";
    if (plan.ending === "cut") return reply.reset();
    return reply.json({ error: { message: "not today" } }, plan.ending === "refuse" ? 400 : 500);
  }
  const { final } = reporting(plan.report, dispatch.promptTokens, 0);
  dispatch.reported = final && { ...final, completion: 0 };
  const data = (Array.isArray(input) && typeof input[0] !== "number" ? input : [input]).map((_, index) => ({
    object: "embedding",
    index,
    embedding: [0.25, -0.5],
  }));
  await reply.json({
    object: "list",
    data,
    model: dispatch.model,
    ...(final && { usage: { prompt_tokens: final.prompt, total_tokens: final.prompt } }),
  });
  dispatch.end = isClosed() ? "closed" : "whole";
}
