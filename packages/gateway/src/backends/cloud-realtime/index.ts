import { socketFailure } from "@model-gateway/wire/websocket";
import { objectIn } from "../../kernel/json.ts";
import {
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  type RealtimeLink,
  type RealtimeOpen,
} from "../contract.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { reachability } from "../shared/probe.ts";
import { chooseRealtimeDialect, KNOWN_SETTINGS, realtimeUrl } from "./dialects.ts";

const CONNECT_TIMEOUT_MS = 10_000;
/** About a minute of audio; an upstream that is further behind is not keeping up. */
const BUFFERED_BYTES_MAX = 4 * 1024 * 1024;

type Headers = Record<string, string>;
// Bun's client takes headers; the DOM's type does not know them.
const ClientSocket = WebSocket as unknown as new (url: string, options: { headers: Headers }) => WebSocket;

/** A cloud realtime WebSocket API. Audio passes untouched in both directions. */
export function createCloudRealtime(config: BackendConfig, { fetch }: Pick<BackendDeps, "fetch">): Backend {
  const dialect = chooseRealtimeDialect(config.url);
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
    probe: (signal) => reachability({ fetch, url: config.url.replace(/^ws/, "http"), signal }),
    close() {},
  };
}

function connected(socket: WebSocket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => give("no connection within 10 s"), CONNECT_TIMEOUT_MS);
    const leave = () => give("the caller left");
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      socket.onopen = socket.onerror = socket.onclose = null;
    };
    const give = (why: string) => {
      done();
      socket.close();
      reject(new BackendError("connect", `the realtime API could not be reached: ${why}`));
    };
    signal.addEventListener("abort", leave);
    socket.onopen = () => {
      done();
      resolve();
    };
    socket.onerror = (event) => give(socketFailure((event as ErrorEvent).message || "connection failed"));
    socket.onclose = ({ code, reason }) => give(reason || `closed with code ${code}`);
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
