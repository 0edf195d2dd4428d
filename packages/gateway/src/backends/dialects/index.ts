import type { BackendConfig, DialectName } from "../contract.ts";
import { chat } from "./chat/index.ts";
import type { Dialect } from "./dialect.ts";
import { gemini } from "./gemini/index.ts";
import { messages } from "./messages/index.ts";
import { responses } from "./responses/index.ts";

export const dialects: Readonly<Record<DialectName, Dialect>> = { chat, responses, messages, gemini };

/** What the vendors speak at their own addresses; everything else speaks chat completions. */
const HOSTS: readonly { host: RegExp; not?: RegExp; speaks: readonly DialectName[] }[] = [
  { host: /^api\.openai\.com$/i, speaks: ["chat", "responses"] },
  { host: /^api\.anthropic\.com$/i, speaks: ["messages"] },
  // Below /openai is its chat-completions layer.
  { host: /^generativelanguage\.googleapis\.com$/i, not: /\/openai(\/|$)/i, speaks: ["gemini"] },
];
const USUAL: readonly DialectName[] = ["chat"];

/** As registered; otherwise by the host. The first is the one that chats are sent in. */
export function dialectsOf({
  dialects: given,
  url,
}: Pick<BackendConfig, "dialects" | "url">): readonly DialectName[] {
  if (given && given.length > 0) return given;
  const { hostname = "", pathname = "" } = URL.parse(url) ?? {};
  return HOSTS.find(({ host, not }) => host.test(hostname) && !not?.test(pathname))?.speaks ?? USUAL;
}
