import type { BackendConfig } from "../../../backends/contract.ts";
import { refuse } from "../request/fields.ts";
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
  for (const name of payload.sentNames())
    if (!known.includes(name) && !fields.includes(name))
      refuse(name, `is not known here; known are ${[...known, ...fields].join(", ")}`);
  if (!(payload instanceof FormPayload)) return;
  for (const { name } of payload.files)
    if (known.includes(name) && !files.includes(name)) refuse(name, "must be a text, not a file");
}
