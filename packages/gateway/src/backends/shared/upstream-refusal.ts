import { isObject } from "../../kernel/json.ts";
import type { Overflow, UpstreamRefusal } from "../contract.ts";

const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const count = (value: unknown): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;

const OVERFLOW_STATUS: readonly number[] = [400, 413, 422];
const OVERFLOW_NAMES: readonly string[] = ["context_length_exceeded", "exceed_context_size_error"];
const OVERFLOW_WORDS =
  /context (?:length|size|window)|maximum model length|prompt is too long|tokens? .{0,40}exceeds? .{0,40}(?:maximum|limit)/i;

/** How servers write the figures: of the prompt and of the context, in either order. */
const FIGURES: readonly { words: RegExp; prompt: number; context: number }[] = [
  { words: /request \((\d+) tokens\) exceeds the available context size \((\d+)/, prompt: 1, context: 2 },
  { words: /input \((\d+) tokens\) is longer than .{0,60}?\((\d+) tokens\)/, prompt: 1, context: 2 },
  { words: /prompt is too long: (\d+) tokens > (\d+)/, prompt: 1, context: 2 },
  { words: /length (\d+)\) is longer than the maximum model length of (\d+)/, prompt: 1, context: 2 },
  { words: /maximum context length is (\d+) tokens.{0,80}?(\d+) (?:input )?tokens/s, prompt: 2, context: 1 },
];

/** What a non-2xx answer says besides its message. `body` is the parsed error body: `{error: {…}}` or the members themselves. */
export function refusalOf(status: number, detail: string, body: unknown): UpstreamRefusal {
  const members = isObject(body) ? (isObject(body.error) ? body.error : body) : {};
  const type = text(members.type);
  const code = text(members.code);
  const isOverflow =
    OVERFLOW_STATUS.includes(status) &&
    ([type, code].some((name) => name !== null && OVERFLOW_NAMES.includes(name)) ||
      OVERFLOW_WORDS.test(detail));
  return { type, code, param: text(members.param), overflow: isOverflow ? figuresOf(members, detail) : null };
}

function figuresOf(members: Record<string, unknown>, detail: string): Overflow {
  const promptTokens = count(members.n_prompt_tokens);
  const contextTokens = count(members.n_ctx);
  if (promptTokens !== null || contextTokens !== null) return { promptTokens, contextTokens };
  for (const { words, prompt, context } of FIGURES) {
    const found = words.exec(detail);
    if (found) return { promptTokens: Number(found[prompt]), contextTokens: Number(found[context]) };
  }
  return { promptTokens: null, contextTokens: null };
}
