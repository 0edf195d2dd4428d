import { isObject } from "../../kernel/json.ts";

const MEMBER_CHARS_MAX = 256;

/** What an upstream's error body says besides its message. */
export interface UpstreamRefusal {
  type: string | null;
  code: string | null;
  param: string | null;
  /** llama.cpp's figures of a prompt that does not fit. */
  promptTokens: number | null;
  contextTokens: number | null;
}

/** A prompt that does not fit into the model's context; figures where the upstream gives them. */
export interface Overflow {
  promptTokens: number | null;
  contextTokens: number | null;
}

const text = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? value.slice(0, MEMBER_CHARS_MAX) : null;
const count = (value: unknown): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;

/** Of a parsed error body: `{error: {…}}` or the members themselves. */
export function refusalOf(body: unknown): UpstreamRefusal | undefined {
  if (!isObject(body)) return undefined;
  const { type, code, param, n_prompt_tokens, n_ctx } = isObject(body.error) ? body.error : body;
  return {
    type: text(type),
    code: text(code),
    param: text(param),
    promptTokens: count(n_prompt_tokens),
    contextTokens: count(n_ctx),
  };
}

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

/** Whether a refusal means that the prompt is too long for the model. */
export function overflowOf(
  status: number | undefined,
  detail: string,
  refusal: UpstreamRefusal | undefined,
): Overflow | null {
  if (status === undefined || !OVERFLOW_STATUS.includes(status)) return null;
  const names = [refusal?.type ?? "", refusal?.code ?? ""];
  if (!names.some((name) => OVERFLOW_NAMES.includes(name)) && !OVERFLOW_WORDS.test(detail)) return null;
  if (refusal?.promptTokens != null || refusal?.contextTokens != null) {
    return { promptTokens: refusal.promptTokens, contextTokens: refusal.contextTokens };
  }
  for (const { words, prompt, context } of FIGURES) {
    const found = words.exec(detail);
    if (found) return { promptTokens: Number(found[prompt]), contextTokens: Number(found[context]) };
  }
  return { promptTokens: null, contextTokens: null };
}
