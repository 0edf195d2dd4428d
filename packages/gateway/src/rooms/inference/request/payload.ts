import type { JsonBody } from "../../../backends/contract.ts";
import { ProtectedNames, SPEND_NAMES, type SpendFields } from "./spend-fields.ts";

/** Fields that are the gateway's own; no upstream sees them. */
const OWN_FIELDS: readonly string[] = ["conversation_id", "memory", "extra", "provider"];
/** What `extra` can never set. */
const PROTECTED: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "temperature",
  "max_tokens",
  "options",
  "input",
  "prompt",
  ...OWN_FIELDS,
]);
export const SPELLED_ONE_WAY = new ProtectedNames([
  ...PROTECTED,
  ...SPEND_NAMES,
  "stream_options",
  "tools",
  "echo",
]);
export const SPELLED_ONE_WAY_IN_OPTIONS = new ProtectedNames(SPEND_NAMES);

export const isOwnField = (key: string): boolean => OWN_FIELDS.includes(key);
export const hasOwnField = (payload: Pick<Payload, "has">): boolean =>
  OWN_FIELDS.some((key) => payload.has(key));

/** Whether a member of `extra` goes into what is sent: where nothing else has its name. Throws for a bad name. */
export function isExtraSent(payload: Pick<Payload, "has">, key: string): boolean {
  SPELLED_ONE_WAY.require(key, "extra.");
  return !PROTECTED.has(key) && !payload.has(key);
}

export type Kind = "string" | "array" | "empty array" | "object" | "null" | "scalar";

/** A request body whose top level is known: the client's own bytes, or what another API's request was turned into. */
export interface Payload {
  /** Whether there may be images or sounds in the messages. */
  readonly mayHaveMedia: boolean;
  has(key: string): boolean;
  /** Undefined when there is no such field. */
  kindOf(key: string): Kind | undefined;
  /** The parsed value; only for fields that the gateway must understand. */
  value(key: string): unknown;
  /** How many tokens an array of token numbers, or of such arrays, has; null when the field is something else. */
  tokenCount(key: string): number | null;
  /**
   * What the request, as it will be sent, says about the size of its answer. Throws the refusal of a limit that is
   * not a number, and of a key that some servers would take for one.
   */
  spendFields(): SpendFields;
  /**
   * What is sent upstream: `set` replaces or adds fields, given as JSON texts; the gateway's own fields go; the
   * members of an `extra` object are added where nothing has that name.
   */
  compose(set: ReadonlyMap<string, string>): JsonBody;
}
