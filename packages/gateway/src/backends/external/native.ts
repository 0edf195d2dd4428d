import {
  type Answer,
  type BackendConfig,
  type BackendDeps,
  clientFailure,
  type DialectName,
  type NativeDialect,
} from "../contract.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { ResponseAnswer } from "../shared/response-answer.ts";
import { fetchUpstream, upstreamError } from "../shared/upstream-http.ts";

export const JSON_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
  // Compressed chunks would wait for each other, and inflating costs more than the loopback or LAN saves.
  "accept-encoding": "identity",
};

/** Requests in a dialect of the server, which pass as they are; empty for chats, which pass as bytes anyway. */
export function nativeOf(
  { name, base, path, headers, native }: Dialect,
  { config, deps: { fetch, openOrigin } }: { config: BackendConfig; deps: BackendDeps },
): [DialectName, NativeDialect & { close(): void }][] {
  if (!native) return [];
  const { answerHeaders } = native;
  const url = new URL(base(config.url));
  const prefix = url.pathname.replace(/\/$/, "");
  const origin =
    openOrigin && url.protocol === "http:"
      ? openOrigin({
          url: url.origin,
          headers: JSON_HEADERS,
          failure: clientFailure,
          errorOf: (answer) => upstreamError(answer, answerHeaders),
        })
      : null;
  const post: NativeDialect["post"] = async (call): Promise<Answer> => {
    const { body, signal } = call;
    // The client's own version of the API goes before ours; its key never does.
    const sent = { ...headers(null), ...call.headers, ...keyIn(headers(config.apiKey), headers(null)) };
    const target = prefix + path(call);
    if (origin) return origin.post(target, body.bytes(), call, sent);
    const all = { ...JSON_HEADERS, ...sent };
    const options = { url: url.origin + target, headers: all, signal, body: body.bytes(), answerHeaders };
    return new ResponseAnswer(await fetchUpstream(fetch, options), signal);
  };
  return [[name, { ...native, post, close: () => origin?.close() }]];
}

/** The headers that are there because of the key. */
const keyIn = (withKey: Record<string, string>, without: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(withKey).filter(([name]) => !(name in without)));
