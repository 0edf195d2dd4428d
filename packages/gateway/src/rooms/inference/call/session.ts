import type { SessionOf } from "../../../kernel/affinity.ts";
import { isObject } from "../../../kernel/json.ts";
import type { Payload } from "../request/payload.ts";
import type { UpstreamCallOptions } from "./upstream-call.ts";

/** Headers in which agents and front ends name their session, most specific first. */
const HEADERS = (
  "x-claude-code-session-id session-id session_id x-session-affinity x-session-id x-conversation-id " +
  "x-kilocode-taskid x-openwebui-chat-id x-interaction-id"
).split(" ");
const SIGN_CHARS_MAX = 256;

/** The session named in the client's headers, if any. */
export function sessionHeader(header: (name: string) => string | null): string | null {
  for (const name of HEADERS) {
    const value = header(name);
    if (value) return value.slice(0, SIGN_CHARS_MAX);
  }
  return null;
}

/** The session named in the body, if any. */
export function sessionField(value: (field: string) => unknown): string | null {
  const [metadata, client] = [value("metadata"), value("client_metadata")];
  const signs = [
    value("prompt_cache_key"),
    isObject(client) && client.session_id,
    isObject(metadata) && metadata.user_id,
  ];
  const sign = signs.find((each) => typeof each === "string" && each !== "") as string | undefined;
  return sign?.slice(0, SIGN_CHARS_MAX) ?? null;
}

const SYSTEM_FIELDS = ["system", "instructions", "systemInstruction"] as const;
/** A first message that is too long to parse is a plain string here. */
const isSystem = (turn: unknown): boolean =>
  isObject(turn) ? turn.role === "system" || turn.role === "developer" : typeof turn === "string";
const isUser = (turn: unknown): boolean => isObject(turn) && (turn.role ?? "user") === "user";
const ENDS_CHARS = 128;
/** Cache marks move from turn to turn, so they are left out. Long texts are identified by both ends, which is faster. */
function signed(name: string, value: unknown): unknown {
  if (name === "cache_control") return undefined;
  if (typeof value !== "string" || value.length <= 2 * ENDS_CHARS) return value;
  return `${value.length} ${value.slice(0, ENDS_CHARS)}${value.slice(-ENDS_CHARS)}`;
}

/** A hash of what stays the same in all turns of a session. Null without instructions and tools: nothing worth caching. */
function promptSign(payload: Payload): string | null {
  const turns =
    [payload.opening(), payload.value("input"), payload.value("contents")].find(Array.isArray) ?? [];
  const system = [...SYSTEM_FIELDS.map((name) => payload.value(name) ?? null), turns.filter(isSystem)];
  const tools = payload.value("tools") ?? null;
  if (tools === null && system.flat().every((each) => each === null)) return null;
  return Bun.hash(JSON.stringify([system, tools, turns.find(isUser)], signed)).toString(36);
}

/** The client chooses the session's name, so it only counts among the key's own requests. Conversations have their own pin. */
export function sessionOf({
  asker,
  capability,
  payload,
  boundTo,
}: UpstreamCallOptions): SessionOf | undefined {
  if (capability !== "chat" || boundTo !== undefined) return undefined;
  let session: string | null | undefined;
  return () => {
    if (session === undefined) {
      const named = asker.session?.() ?? payload.session ?? sessionField((field) => payload.value(field));
      const sign = named ?? promptSign(payload) ?? payload.firstResponse;
      session = sign && `${asker.payer.keyId ?? asker.payer.userId} ${sign}`;
    }
    return session;
  };
}
