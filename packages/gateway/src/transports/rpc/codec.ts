import { fail, type RpcErrorObject, ServiceError, toRpcError } from "../../kernel/errors.ts";
import { isObject, parseJson } from "../../kernel/json.ts";
import { endOfString } from "../../kernel/json-scan.ts";

const BATCH_MAX = 100;
const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;

/** One request of a body: what to run, or why it cannot be; `idJson` is the JSON text of the id to answer with. */
export type RpcRequest = { idJson: string } & (
  | { method: string; params: unknown }
  | { invalid: ServiceError }
);

type RpcBody = { batch: false; requests: [RpcRequest] } | { batch: true; requests: RpcRequest[] };

// Only these ids lose something in JSON.parse: long digits, and numbers written with a point or an exponent. The
// key may be written with escapes.
const DELICATE_ID = /"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*-?(\d{16}|\d+[.eE]|0\d*[^\d,}\]\s])/;

const NUMBER_AFTER_KEY = /\s*:\s*(-?\d[\d.eE+-]*)/y;

/** Source texts of every numeric top-level `id`. A scan: a second parse with a reviver would be many times slower. */
function idSources(text: string): (string | undefined)[] {
  const sources: (string | undefined)[] = [];
  const requestDepth = /^\s*\[/.test(text) ? 2 : 1;
  let depth = 0;
  let element = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 34) {
      const end = endOfString(text, i + 1);
      NUMBER_AFTER_KEY.lastIndex = end;
      const number = depth === requestDepth ? NUMBER_AFTER_KEY.exec(text) : null;
      if (number && JSON.parse(text.slice(i, end)) === "id") sources[element] = number[1];
      i = end - 1;
    } else if (char === 123 || char === 91) depth++;
    else if (char === 125 || char === 93) depth--;
    else if (char === 44 && depth === requestDepth - 1) element++;
  }
  return sources;
}

/** JSON text of the echoed id: null, string and 64-bit integer keep their type, anything else becomes a string. */
function echoId(id: unknown, source?: string): string {
  if (id === undefined || id === null) return "null";
  if (typeof id === "string") return JSON.stringify(id);
  if (typeof id === "number") {
    if (source === undefined && Number.isSafeInteger(id)) return String(id);
    const text = source ?? String(id);
    // No more digits than an i64 has: reading a million of them would hold up everyone else.
    if (/^-?\d{1,19}$/.test(text) && BigInt(text) >= I64_MIN && BigInt(text) <= I64_MAX) return text;
    return JSON.stringify(text);
  }
  return JSON.stringify(JSON.stringify(id));
}

function toRequest(value: unknown, source: string | undefined): RpcRequest {
  if (!isObject(value)) {
    return {
      idJson: "null",
      invalid: new ServiceError("invalid_request", "Invalid request: each request is a JSON object"),
    };
  }
  const idJson = echoId(value.id, source);
  const invalid = (message: string): RpcRequest => ({
    idJson,
    invalid: new ServiceError("invalid_request", `Invalid request: ${message}`),
  });
  if (value.jsonrpc !== "2.0") return invalid('`jsonrpc` must be the string "2.0"');
  if (typeof value.method !== "string") return invalid("`method` must be a string");
  // Some clients write a call without parameters as one with an empty list of them.
  const isNone = Array.isArray(value.params) && value.params.length === 0;
  const params = isNone ? undefined : value.params;
  if (params !== undefined && params !== null && !isObject(params)) {
    const problem = new ServiceError(
      "invalid_params",
      "Invalid params: `params` must be an object with named parameters",
    );
    return { idJson, invalid: problem };
  }
  return { idJson, method: value.method, params };
}

/** Reads a body; what makes it unusable as a whole is thrown, what is wrong in one element stays with it. */
export function decodeBody(text: string): RpcBody {
  const value = parseJson(text);
  const sources = DELICATE_ID.test(text) ? idSources(text) : [];
  if (!Array.isArray(value)) return { batch: false, requests: [toRequest(value, sources[0])] };
  if (value.length === 0) fail("invalid_request", "Invalid request: an empty batch");
  if (value.length > BATCH_MAX)
    fail("invalid_request", `Invalid request: a batch holds at most ${BATCH_MAX} requests`);
  return { batch: true, requests: value.map((item, i) => toRequest(item, sources[i])) };
}

export const encodeResult = (idJson: string, result: unknown): string =>
  `{"jsonrpc":"2.0","id":${idJson},"result":${JSON.stringify(result ?? null)}}`;

const encodeError = (idJson: string, error: RpcErrorObject): string =>
  `{"jsonrpc":"2.0","id":${idJson},"error":${JSON.stringify(error)}}`;

export const encodeFailure = (error: ServiceError, idJson = "null"): string =>
  encodeError(idJson, toRpcError(error));
