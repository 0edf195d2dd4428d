import { isObject } from "../../kernel/json.ts";

/** Why the chat path refused or broke, whatever form it said it in. */
export interface ChatFailure {
  status: number;
  message: string;
  type: string;
  code: string | null;
}

const textOr = (value: unknown, otherwise: string): string =>
  typeof value === "string" && value !== "" ? value : otherwise;

/** The failure inside a parsed error body: wrapped, flat, or only a text. */
export function failureOf(body: unknown, status: number): ChatFailure {
  const error = isObject(body) ? (body.error ?? body) : body;
  const fields = isObject(error) ? error : { message: error };
  return {
    status,
    message: textOr(fields.message, `the request failed with status ${status}`),
    type: textOr(fields.type, status >= 500 ? "server_error" : "invalid_request"),
    code: fields.code == null ? null : String(fields.code),
  };
}

/** Error answers are JSON, except the two that are plain text: a bad key, and the per-key limit. */
export async function readFailure(response: Response): Promise<ChatFailure> {
  const text = await response.text();
  try {
    return failureOf(JSON.parse(text), response.status);
  } catch {
    return failureOf(text.trim(), response.status);
  }
}
