import type { BackendConfig, LimitFields } from "../../contract.ts";
import { dialectsOf } from "../index.ts";

/** OpenAI's models since o1 refuse `max_tokens` on every host. */
const NEWER_OPENAI = /(^|[/:])(o[1-9]\d*|gpt-([5-9]|\d\d))([.-]|$)/i;
/** Hosts and engines known to honour both names; others may ignore the newer one. */
const KNOWS_BOTH_HOSTS =
  /(^|\.)(openai\.com|azure\.com|groq\.com|openrouter\.ai|x\.ai|anthropic\.com|googleapis\.com)$/i;
const KNOWS_BOTH_TYPES: ReadonlySet<string> = new Set(["vllm", "sglang"]);

const NEWER = ["max_completion_tokens", "max_tokens"] as const;
const BOTH = ["max_tokens", "max_completion_tokens"] as const;
const OLDER = ["max_tokens"] as const;

/** The fields of a chat request that limit the answer of an API, for each of its models. */
export function limitFieldsFor(
  config: Pick<BackendConfig, "url" | "type" | "dialects" | "limit_field">,
): LimitFields {
  // Translated requests have either as the dialect's own field.
  if (dialectsOf(config)[0] !== "chat") return () => BOTH;
  const { limit_field: field } = config;
  if (field) return () => [field];
  const host = URL.parse(config.url)?.hostname ?? "";
  const usual = KNOWS_BOTH_TYPES.has(config.type.toLowerCase()) || KNOWS_BOTH_HOSTS.test(host) ? BOTH : OLDER;
  return (model) => (NEWER_OPENAI.test(model) ? NEWER : usual);
}
