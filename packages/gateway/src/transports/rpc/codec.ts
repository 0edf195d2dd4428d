import { fail, ServiceError, toRpcError } from "../../kernel/errors.ts";
import { isObject, parseJson } from "../../kernel/json.ts";
import { endOfString } from "../../kernel/json-scan.ts";

const BATCH_MAX = 100;
const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;

/** One request of a body, or why it is invalid; `idJson` is the JSON text of the id in the answer. */
export type RpcRequest = { idJson: string } & (
  | { method: string; params: unknown }
  | { invalid: ServiceError }
);

type RpcBody = { batch: false; requests: [RpcRequest] } | { batch: true; requests: RpcRequest[] };

// JSON.parse changes only these ids: with many digits, a point or an exponent. The key may be written with escapes.
const DELICATE_ID = /"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*-?(\d{16}|\d+[.eE]|0\d*[^\d,}\]\s])/;

const NUMBER_AFTER_KEY = /\s*:\s*(-?\d[\d.eE+-]*)/y;

/** The source texts of numeric top-level ids. A second parse with a reviver would be many times slower. */
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

/** JSON of the id in the answer: null, strings and 64-bit integers keep their type, anything else becomes a string. */
function echoId(id: unknown, source?: string): string {
  if (id === undefined || id === null) return "null";
  if (typeof id === "string") return JSON.stringify(id);
  if (typeof id === "number") {
    if (source === undefined && Number.isSafeInteger(id)) return String(id);
    const text = source ?? String(id);
    // No more digits than an i64 has: converting a million would block the event loop.
    if (/^-?\d{1,19}$/.test(text) && BigInt(text) >= I64_MIN && BigInt(text) <= I64_MAX) return text;
    return JSON.stringify(text);
  }
  return JSON.stringify(JSON.stringify(id));
}

function toRequest(value: unknown, source: string | undefined): RpcRequest {
  const idJson = isObject(value) ? echoId(value.id, source) : "null";
  const invalid = (message: string): RpcRequest => ({
    idJson,
    invalid: new ServiceError("invalid_request", `Invalid request: ${message}`),
  });
  if (!isObject(value)) return invalid("each request is a JSON object");
  if (value.jsonrpc !== "2.0") return invalid('`jsonrpc` must be the string "2.0"');
  if (typeof value.method !== "string") return invalid("`method` must be a string");
  // Some clients send an empty list instead of no parameters.
  const isNone = Array.isArray(value.params) && value.params.length === 0;
  const params = isNone ? undefined : value.params;
  if (params !== undefined && params !== null && !isObject(params)) {
    const message = "Invalid params: `params` must be an object with named parameters";
    return { idJson, invalid: new ServiceError("invalid_params", message) };
  }
  return { idJson, method: value.method, params };
}

/** Throws what makes the whole body invalid; problems of one element are returned with it. */
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

export const encodeFailure = (error: ServiceError, idJson = "null"): string =>
  `{"jsonrpc":"2.0","id":${idJson},"error":${JSON.stringify(toRpcError(error))}}`;
