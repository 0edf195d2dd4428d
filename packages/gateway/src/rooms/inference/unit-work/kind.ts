import { z } from "zod";
import type { PostedCapability } from "../../../backends/contract.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import type { Payload } from "../request/payload.ts";

/** A kind of work that is passed through: its path, its fields, the most it may use, and what it used. */
export interface WorkKind {
  /** Path below `/v1` here, and below the upstream's base URL. */
  path: `/${string}`;
  summary: string;
  capability: PostedCapability;
  /** Whether the body is, or may be, `multipart/form-data`. */
  form: "never" | "allowed" | "required";
  /** All known fields; others are refused unless the operator listed them for the backend. */
  body: z.ZodObject;
  files?: readonly string[];
  response: z.ZodType;
  /** Media type of the answer if it is not JSON. */
  responseType?: string;
  /** Schema of an event, if the answer can be an event stream. */
  events?: z.ZodType;
  /** The answer is relayed piece by piece, whatever its type. */
  isStreamed?: true;
  /** Checks the fields that matter; throws if one is wrong. */
  read(payload: Payload): AskedWork | Promise<AskedWork>;
  /** What a whole answer says was made. Throws if it is an error. */
  made(answer: AnswerBody): Made;
}

/** Fields that pass unchanged and do not affect the price, separated by spaces. */
export const known = (names: string): Record<string, z.ZodOptional<z.ZodUnknown>> =>
  Object.fromEntries(names.split(" ").map((name) => [name, z.unknown().optional()]));
