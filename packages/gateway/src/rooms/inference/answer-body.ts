import { type Answer, BackendError } from "../../backends/contract.ts";
import { isObject } from "../../kernel/json.ts";

/** 2,048 vectors of 3,072 numbers in text are half of this. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
/** Every server writes the list near the beginning. */
const HEAD_BYTES = 4 * 1024;

/** The whole body of an answer; at once when it is all there. */
export const readAnswer = (answer: Answer): Buffer | Promise<Buffer> => answer.bytes(ANSWER_BYTES_MAX);

/** Refuses an answer that lacks its list (`choices`, `data`): an error inside a 200, or no answer at all. */
export function requireList(body: Buffer, list: "choices" | "data"): void {
  if (body.subarray(0, HEAD_BYTES).includes(`"${list}"`)) return;
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    throw new BackendError("transport", "the upstream answered with something that is not JSON");
  }
  if (isObject(parsed) && Array.isArray(parsed[list])) return;
  const error = isObject(parsed)
    ? (parsed.error ?? (parsed.object === "error" ? parsed.message : null))
    : null;
  const message = isObject(error) ? error.message : error;
  if (typeof message === "string") throw new BackendError("upstream", message.slice(0, 4_096), 500);
  throw new BackendError("transport", `the upstream answered without \`${list}\``);
}
