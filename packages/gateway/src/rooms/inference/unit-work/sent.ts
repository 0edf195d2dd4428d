import { isObject } from "../../../kernel/json.ts";
import { isExtraSent, type Payload } from "../request/payload.ts";
import { spendNumber } from "../request/spend-fields.ts";
import { FormPayload } from "./form-payload.ts";

/** A field as it is sent: what stands in `extra` takes its place. */
export function sentValue(payload: Payload, name: string): unknown {
  const extra = payload instanceof FormPayload ? null : payload.value("extra");
  if (isObject(extra) && Object.hasOwn(extra, name) && isExtraSent(payload, name)) return extra[name];
  return payload.value(name);
}

/** A count as it is sent; null when there is none. Throws the refusal of what is not a number. */
export function sentCount(payload: Payload, name: string): number | null {
  const value = payload instanceof FormPayload ? payload.number(name) : sentValue(payload, name);
  return value === undefined ? null : spendNumber(value, name);
}
