import type { DialectName } from "../../../backends/contract.ts";
import type { SpendFields } from "./field-rules.ts";
import type { Payload } from "./payload.ts";

/** A request in a vendor's own dialect: a backend that speaks it is sent the client's bytes. */
export interface NativeRequest {
  dialect: DialectName;
  /** As the client wrote it. */
  payload: Payload;
  model: string;
  stream: boolean;
  spend: SpendFields;
  /** Fields to set so that the answer has at most so many tokens. */
  limited(tokens: number): ReadonlyMap<string, string>;
  /** The client's headers with such names. */
  headersLike(names: RegExp): Record<string, string>;
  /** The same as a chat, for a backend that does not speak the dialect. Throws the refusal of what no chat can carry. */
  chat(): Payload;
}
