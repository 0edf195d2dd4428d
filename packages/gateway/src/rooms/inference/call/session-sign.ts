import { isObject } from "../../../kernel/json.ts";

/** How agents and front ends name their sessions, the strongest first. */
const HEADERS = [
  "x-claude-code-session-id",
  "session-id",
  "session_id",
  "x-session-affinity",
  "x-session-id",
  "x-conversation-id",
  "x-kilocode-taskid",
  "x-openwebui-chat-id",
  "x-interaction-id",
] as const;
const SIGN_CHARS_MAX = 256;

/** The session that a client's headers name; null when they name none. */
export function sessionHeader(header: (name: string) => string | null): string | null {
  for (const name of HEADERS) {
    const value = header(name);
    if (value) return value.slice(0, SIGN_CHARS_MAX);
  }
  return null;
}

/** The same for a request's body. */
export function sessionField(value: (name: string) => unknown): string | null {
  const [metadata, client] = [value("metadata"), value("client_metadata")];
  const signs = [
    value("prompt_cache_key"),
    isObject(client) && client.session_id,
    isObject(metadata) && metadata.user_id,
  ];
  const sign = signs.find((each) => typeof each === "string" && each !== "") as string | undefined;
  return sign?.slice(0, SIGN_CHARS_MAX) ?? null;
}
