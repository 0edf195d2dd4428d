import { z } from "zod";
import type { PostedCapability } from "../../../backends/contract.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import type { Payload } from "../request/payload.ts";

/** A kind of work that passes as it is: where it goes, what it may use at most, and what it used. */
export interface WorkKind {
  /** Below `/v1` here, and below the base URL of the upstream. */
  path: `/${string}`;
  summary: string;
  capability: PostedCapability;
  /** Whether the body is, or may be, `multipart/form-data`. */
  form: "never" | "allowed" | "required";
  /** Every field that is known: no other passes, unless the operator listed it for the backend. */
  body: z.ZodObject;
  files?: readonly string[];
  response: z.ZodType;
  /** Media type of the answer where it is not JSON. */
  responseType?: string;
  /** Each event, where the answer can be a stream of them. */
  events?: z.ZodType;
  /** The answer is passed on piece by piece, whatever its type. */
  isStreamed?: true;
  /** Checks the fields that matter here; throws the refusal. */
  read(payload: Payload): AskedWork | Promise<AskedWork>;
  /** From an answer that was read whole. Throws where it is not an answer at all. */
  made(answer: AnswerBody): Made;
}

/** Fields that pass as they are and have no price; their names with spaces between. */
export const known = (names: string): Record<string, z.ZodOptional<z.ZodUnknown>> =>
  Object.fromEntries(names.split(" ").map((name) => [name, z.unknown().optional()]));
