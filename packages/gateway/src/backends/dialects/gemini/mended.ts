import { isObject } from "../../../kernel/json.ts";
import { thoughtsIn } from "../../../kernel/own-thoughts.ts";
import type { NativeDialect } from "../../contract.ts";
import type { Part } from "./request.ts";
import { BUDGETED_MODEL, NO_SIGNATURE } from "./request.ts";

const partsOf = (content: unknown): unknown[] =>
  isObject(content) && content.role === "model" && Array.isArray(content.parts) ? content.parts : [];
/** Of the calls in one content, the first is signed by the model that made them. */
const firstCall = (content: unknown): Part | undefined =>
  partsOf(content).find((part): part is Part => isObject(part) && isObject(part.functionCall));

/** Calls that another model made. Models before Gemini 3 sign none. */
export const mended: NativeDialect["mended"] = (body, model) => {
  const contents = body.value("contents");
  const isSigning = !BUDGETED_MODEL.test(model);
  const isForeign = (call: Part | undefined) =>
    call !== undefined &&
    (thoughtsIn(call.thoughtSignature) !== null || (isSigning && call.thoughtSignature === undefined));
  if (!Array.isArray(contents) || !contents.some((content) => isForeign(firstCall(content)))) return [];
  const signed = contents.map((content) => {
    const call = firstCall(content);
    if (!isForeign(call)) return content;
    const own = { ...call, thoughtSignature: isSigning ? NO_SIGNATURE : undefined };
    return { ...content, parts: partsOf(content).map((part) => (part === call ? own : part)) };
  });
  return [["contents", JSON.stringify(signed)]];
};
