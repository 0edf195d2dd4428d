import type { z } from "zod";
import type { PostedCapability } from "../../../backends/contract.ts";
import type { ImageLook, WorkUnit } from "../../billing/index.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { Payload } from "../request/payload.ts";

export type Counts = Readonly<Partial<Record<WorkUnit, number>>>;

/** The most that a request may use, from its body as it is sent. */
export interface Asked {
  /** What it may be priced by. */
  units: readonly WorkUnit[];
  /** At most so many of each unit. */
  counts: Counts;
  /** Of images. */
  look?: ImageLook;
  /** The body is a form: `promptTokens` are all that it has. */
  isForm: boolean;
  /** Besides those of a body that is JSON. */
  promptTokens: number;
  /** At most. */
  outputTokens: number;
  /** What counts as output where the upstream reports no usage; absent: `outputTokens`. */
  outputTokensCounted?: number;
  /** A report of more seconds than this flags the backend. */
  secondsBelieved?: number;
}

/** What an answer says was made. What it does not say is as it was asked for. */
export interface Made {
  counts?: Counts;
  look?: Partial<ImageLook>;
  /** What cannot be true. */
  problem?: string;
}

/** A kind of work that passes as it is: where it goes, what it may use at most, and what it used. */
export interface WorkKind {
  /** Below `/v1` here, and below the base URL of the upstream. */
  path: `/${string}`;
  summary: string;
  capability: PostedCapability;
  /** Whether the body is, or may be, `multipart/form-data`. */
  form: "never" | "allowed" | "required";
  body: z.ZodType;
  response: z.ZodType;
  /** Media type of the answer where it is not JSON. */
  responseType?: string;
  /** Each event, where the answer can be a stream of them. */
  events?: z.ZodType;
  /** The answer is passed on piece by piece, whatever its type. */
  isStreamed?: true;
  /** Checks the fields that matter here; throws the refusal. */
  read(payload: Payload): Asked;
  /** From an answer that was read whole. Throws where it is not an answer at all. */
  made(answer: AnswerBody, asked: Asked): Made;
}
