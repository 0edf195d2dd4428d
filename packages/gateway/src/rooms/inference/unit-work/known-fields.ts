import type { BackendConfig } from "../../../backends/contract.ts";
import { failField } from "../../../kernel/errors.ts";
import { unknownIn } from "../../../kernel/known-fields.ts";
import type { Payload } from "../request/payload.ts";
import { FormPayload } from "./form-payload.ts";
import type { WorkKind } from "./kind.ts";

/** Refuses fields that neither the kind of work nor the operator knows: a server could make more of them than is paid. */
export function requireKnown(
  { body, files = [] }: WorkKind,
  payload: Payload,
  { fields = [] }: BackendConfig,
): void {
  const known = Object.keys(body.shape);
  const unknown = unknownIn(payload.sentNames(), [...known, ...fields]);
  if (unknown) failField(unknown.name, unknown.why);
  if (!(payload instanceof FormPayload)) return;
  for (const { name } of payload.files)
    if (known.includes(name) && !files.includes(name)) failField(name, "must be a text, not a file");
}
