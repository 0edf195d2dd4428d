import {
  type Answer,
  type BackendConfig,
  type BackendDeps,
  type BackendSettings,
  clientFailure,
  type DialectName,
  type JsonBody,
  type NativeDialect,
} from "../contract.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { Keys } from "../shared/keys.ts";
import { fetchUpstream, ResponseAnswer, upstreamError } from "../shared/upstream-http.ts";

export const JSON_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
  // Compressed chunks wait for each other, and inflating costs more than the loopback or LAN saves.
  "accept-encoding": "identity",
};

/** The client's headers replace the dialect's; the key and the operator's headers replace both. */
export function headersFor(
  dialect: Dialect,
  config: BackendConfig,
  { key, client }: { key: string | null; client?: Readonly<Record<string, string>> },
): Record<string, string> {
  const auth = config.auth ?? dialect.auth;
  const secret = key && (auth === "bearer" ? { authorization: `Bearer ${key}` } : { [auth]: key });
  return { ...dialect.headers, ...client, ...secret, ...config.headers };
}

/** Our own connections; null for TLS and proxies, which `fetch` handles. */
export const originAt = (
  { origin: url, protocol }: URL,
  { openOrigin }: BackendDeps,
  headers: Readonly<Record<string, string>>,
  kept?: RegExp,
) =>
  protocol === "https:" || !openOrigin
    ? null
    : openOrigin({ url, headers, failure: clientFailure, errorOf: (answer) => upstreamError(answer, kept) });

/** Passes requests in a dialect on unchanged; empty for chat completions, which always are. */
export function nativeOf(
  dialect: Dialect,
  { config, deps, keys }: { config: BackendConfig; deps: BackendDeps; keys: Keys },
): [DialectName, NativeDialect & { close(): void }][] {
  const { name, base, path, native } = dialect;
  if (!native) return [];
  const { answerHeaders } = native;
  const url = new URL(base(config.url));
  const prefix = url.pathname.replace(/\/$/, "");
  const origin = originAt(url, deps, JSON_HEADERS, answerHeaders);
  const sent = sentBody(config);
  const post: NativeDialect["post"] = (call) =>
    keys.use(call.session, async (key): Promise<Answer> => {
      const body = sent(call.body).bytes();
      const headers = headersFor(dialect, config, { key, client: call.headers });
      const target = prefix + path(call);
      if (origin) return origin.post(target, body, call, headers);
      const { signal } = call;
      const all = { ...JSON_HEADERS, ...headers };
      const options = { url: url.origin + target, headers: all, signal, body, answerHeaders };
      return new ResponseAnswer(await fetchUpstream(deps.fetch, options), signal);
    });
  return [[name, { ...native, post, close: () => origin?.close() }]];
}

type Fields = Record<string, unknown>;

export function fieldChange({
  set,
  drop,
  id_prefix: prefix,
}: BackendSettings): ((fields: Fields) => Fields) | null {
  if (!set && !drop?.length && !prefix) return null;
  return (fields) => {
    const sent: Fields = { ...fields, ...set };
    for (const name of drop ?? []) delete sent[name];
    if (prefix && typeof sent.model === "string" && !sent.model.startsWith(prefix))
      sent.model = prefix + sent.model;
    return sent;
  };
}

/** Applies the operator's changes; without any the bytes stay the same. */
export function sentBody(settings: BackendSettings): (body: JsonBody) => JsonBody {
  const change = fieldChange(settings);
  if (!change) return (body) => body;
  return (body) =>
    body.form
      ? body
      : { bytes: () => JSON.stringify(change(body.object())), object: () => change(body.object()) };
}
