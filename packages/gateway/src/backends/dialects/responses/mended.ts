import { isObject } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import type { NativeDialect } from "../../contract.ts";

/** Nothing is stored at the vendor for this gateway, so its own reasoning always comes sealed. */
const isUnsealed = (item: unknown): boolean =>
  isObject(item) &&
  item.type === "reasoning" &&
  (item.encrypted_content == null || thoughtsIn(item.encrypted_content) !== null);

/** Reasoning of other models is left out. */
export const mended: NativeDialect["mended"] = (body) => {
  const input = body.value("input");
  if (!Array.isArray(input) || !input.some(isUnsealed)) return [];
  return [["input", JSON.stringify(input.filter((item) => !isUnsealed(item)))]];
};
