import { socketFailure } from "@model-gateway/wire/websocket";
import { objectIn } from "../../kernel/json.ts";
import { OPENAI_VOICE_SETTINGS, VOICE_SETTINGS } from "../../kernel/known-fields.ts";
import {
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  type MediaRates,
  type RealtimeLink,
  type RealtimeOpen,
} from "../contract.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { reachability } from "../shared/probe.ts";

type Event = Record<string, unknown>;

/** How one vendor's realtime API differs from the gateway's client events. */
interface RealtimeDialect {
  name: string;
  /** Appended to the base URL unless that ends with it. */
  path: string;
  rates: MediaRates;
  known: readonly string[];
  session(config: Event): Event;
  event(event: Event): Event;
}

const DASHSCOPE_SETTINGS =
  "smooth_output top_p top_k max_tokens repetition_penalty presence_penalty seed".split(" ");

const openaiRealtime: RealtimeDialect = {
  name: "openai",
  path: "/v1/realtime",
  // A token is 100 ms of input audio or 50 ms of output audio; an image has at most 8 tiles.
  rates: {
    inputAudioHz: 24_000,
    outputAudioHz: 24_000,
    inputAudioTokensPerSecond: 10,
    outputAudioTokensPerSecond: 20,
    audioSecondsMin: 0,
    tokensPerImage: 85 + 8 * 170,
  },
  known: [...VOICE_SETTINGS, ...OPENAI_VOICE_SETTINGS],
  session: (config) => ({ type: "realtime", ...config }),
  event(event) {
    if (event.type === "session.update" && typeof event.session === "object" && event.session !== null) {
      return { ...event, session: { type: "realtime", ...event.session } };
    }
    if (event.type !== "input_image_buffer.append") return event;
    // OpenAI has no image buffer; an image is an item of the conversation.
    const image = String(event.image ?? "");
    const url = image.startsWith("data:") ? image : `data:image/jpeg;base64,${image}`;
    return {
      type: "conversation.item.create",
      item: { type: "message", role: "user", content: [{ type: "input_image", image_url: url }] },
    };
  },
};

const dashscopeRealtime: RealtimeDialect = {
  name: "dashscope",
  path: "/api-ws/v1/realtime",
  // Rates of Qwen-Omni-Turbo; later models count half of this or less.
  rates: {
    inputAudioHz: 16_000,
    outputAudioHz: 24_000,
    inputAudioTokensPerSecond: 25,
    outputAudioTokensPerSecond: 25,
    audioSecondsMin: 1,
    tokensPerImage: 1_282,
  },
  known: [...VOICE_SETTINGS, ...DASHSCOPE_SETTINGS],
  session: (config) => config,
  event: (event) => event,
};

const KNOWN_SETTINGS = Object.fromEntries(
  [openaiRealtime, dashscopeRealtime].map(({ name, known }) => [`${name}, voice`, known]),
);

function chooseDialect(url: string): RealtimeDialect {
  const { hostname, pathname } = new URL(url);
  return /(^|\.)aliyuncs\.com$/.test(hostname) || pathname.startsWith(dashscopeRealtime.path)
    ? dashscopeRealtime
    : openaiRealtime;
}

/** The address of a session of `model`: https becomes wss, and a bare host gets the dialect's path. */
export function realtimeUrl(base: string, model: string): string {
  const dialect = chooseDialect(base);
  const url = new URL(base.replace(/^http/, "ws"));
  if (!url.pathname.endsWith(dialect.path)) {
    const stem = url.pathname.replace(/\/+$/, "");
    // A base that ends in /v1, as REST clients write it, must not become /v1/v1.
    url.pathname = dialect.path.startsWith(`${stem}/`) ? dialect.path : stem + dialect.path;
  }
  url.searchParams.set("model", model);
  return url.href;
}

const CONNECT_TIMEOUT_MS = 10_000;
/** About a minute of audio: an upstream that is further behind is too slow. */
const BUFFERED_BYTES_MAX = 4 * 1024 * 1024;

type Headers = Record<string, string>;
// Bun's client takes headers, which the DOM's type lacks.
const ClientSocket = WebSocket as unknown as new (url: string, options: { headers: Headers }) => WebSocket;

/** Audio is passed on unchanged in both directions. */
export function createCloudRealtime(config: BackendConfig, { fetch }: Pick<BackendDeps, "fetch">): Backend {
  const dialect = chooseDialect(config.url);
  const headers: Headers = config.apiKey === null ? {} : { authorization: `Bearer ${config.apiKey}` };

  async function open(
    { model, config: session, onEvent, onClose }: RealtimeOpen,
    signal: AbortSignal,
  ): Promise<RealtimeLink> {
    const socket = new ClientSocket(realtimeUrl(config.url, model), { headers });
    await connected(socket, signal);
    let closed = false;
    const finish = (reason: string) => {
      if (closed) return;
      closed = true;
      onClose(reason);
    };
    socket.onmessage = ({ data }) => {
      const event = parseEvent(data);
      if (event) onEvent(event);
      else {
        finish("the upstream sent something that is not a realtime event");
        socket.close();
      }
    };
    socket.onclose = ({ code, reason }) => finish(reason || `the upstream closed the session (${code})`);
    const send = (event: Record<string, unknown>): boolean => {
      if (closed || socket.bufferedAmount > BUFFERED_BYTES_MAX) return false;
      socket.send(JSON.stringify(event));
      return true;
    };
    if (Object.keys(session).length > 0) send({ type: "session.update", session: dialect.session(session) });
    return {
      send: (event) => send(dialect.event(event)),
      close() {
        finish("closed by the gateway");
        socket.close();
      },
    };
  }

  return {
    config,
    realtime: { open, rates: dialect.rates, known: [...dialect.known, ...(config.fields ?? [])] },
    probe: (signal) => reachability(fetch, config.url.replace(/^ws/, "http"), signal),
    close() {},
  };
}

function connected(socket: WebSocket, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const refuse = (why: string) => {
    reject(new BackendError("connect", `the realtime API could not be reached: ${why}`));
    socket.close();
  };
  const timer = setTimeout(() => refuse("no connection within 10 s"), CONNECT_TIMEOUT_MS);
  const leave = () => refuse("the caller left");
  signal.addEventListener("abort", leave);
  socket.onopen = () => resolve();
  socket.onerror = (event) => refuse(socketFailure((event as ErrorEvent).message || "connection failed"));
  socket.onclose = ({ code, reason }) => refuse(reason || `closed with code ${code}`);
  return promise.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
    socket.onopen = socket.onerror = socket.onclose = null;
  });
}

function parseEvent(data: unknown): Record<string, unknown> | null {
  const event = objectIn(typeof data === "string" ? data : new TextDecoder().decode(data as ArrayBuffer));
  return typeof event?.type === "string" ? event : null;
}

export const cloudRealtime: BackendKind = {
  kind: "cloud-realtime",
  label: "Cloud realtime voice",
  speaks: "a vendor's realtime WebSocket",
  types: [],
  schemes: ["ws:", "wss:", "http:", "https:"],
  capabilities: ["realtime"],
  modelSources: ["static"],
  known: KNOWN_SETTINGS,
  fields: [addressField("wss://api.openai.com"), NAME_FIELD, KEY_FIELD, modelsField({ listed: false })],
  create: createCloudRealtime,
};
