import { isObject } from "../../kernel/json.ts";

export const eventText = (data: object, name?: string): string =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;

/** The words of an error, in the forms that vendors have. */
export const wordsOf = (error: unknown): string =>
  isObject(error) && typeof error.message === "string" ? error.message : "the upstream failed";

/** What the model wrote, with a sealed member marked as encoded data: as text it would count several times as long. */
export function sealed(written: unknown, member: string): unknown {
  if (!isObject(written) || written[member] === undefined) return written;
  const { [member]: data, ...rest } = written;
  return { ...rest, data };
}
