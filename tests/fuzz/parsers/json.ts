import { ServiceError } from "@model-gateway/gateway/kernel/errors.ts";
import { isObject, parseJson } from "@model-gateway/gateway/kernel/json.ts";
import { JsonNesting } from "@model-gateway/gateway/kernel/json-scan.ts";
import { AnswerBody } from "@model-gateway/gateway/rooms/inference/call/answer.ts";
import {
  ABSURD,
  largestUsage,
  readUsage,
  usageOfTail,
  usagesIn,
} from "@model-gateway/gateway/rooms/inference/call/usage-tail.ts";
import { Payload } from "@model-gateway/gateway/rooms/inference/request/payload.ts";
import {
  decodeLines,
  encodeEntry,
  type JournalEntry,
} from "@model-gateway/gateway/rooms/metering/journal/codec.ts";
import { decodeBody } from "@model-gateway/gateway/transports/rpc/codec.ts";
import { journalEntry } from "../../../packages/gateway/tests/support/request-lines.ts";
import { inPieces } from "../mutations.ts";
import { type FuzzedParser, holds, orRefused, REFUSED, same } from "../parser.ts";

const WORDS = [
  '"',
  "\\",
  "\\u0000",
  "\\ud800",
  '\\"',
  "{",
  "}",
  "[",
  "]",
  ",",
  ":",
  "null",
  "1e400",
  "-0",
  "\ufeff",
  "\u2028",
  '"__proto__":{}',
  '"model":"other",',
  '"\\u006dodel":"x",',
  '"extra":{"n":5},',
  '"messages":[],',
  '"n":2,',
  "é",
  Buffer.from([0xff]),
  Buffer.from([0xc3]),
];

const parsedOr = (text: string): unknown => {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return REFUSED;
  }
};

const BODIES = [
  '{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}',
  '{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}], "max_tokens": 5, "options": {"num_predict": 1}}',
  '{"messages":[{"role":"user","content":"a\\"b\\\\"}],"model":"\\u006d","extra":{"a":1,"b":[1,2]},"provider":null,"n":1}',
  `{"model":"m","messages":[{"role":"user","content":"${'\\"\\\\ \\u00e9\\n'.repeat(40)}"}]}`,
  '{"input":[1,2,3],"model":"m","memory":false,"tools":[],"x":{"y":{"z":[[]]}}}',
];

/** The body of a chat as it is read and sent on, against `JSON.parse`. */
export const body: FuzzedParser = {
  name: "json-body",
  seeds: BODIES,
  words: WORDS,
  async check(bytes) {
    let payload: Payload;
    try {
      payload = await Payload.read(bytes);
    } catch (error) {
      if (error instanceof ServiceError) return;
      throw error;
    }
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
    const parsed = parsedOr(text);
    holds("what is accepted is an object", isObject(parsed));
    const whole = parsed as Record<string, unknown>;
    for (const [key, value] of Object.entries(whole)) {
      holds(`${key} is there`, payload.has(key));
      same(`the value of ${key}`, payload.value(key), value);
    }
    orRefused([ServiceError], () => payload.spendFields());
    const sent = orRefused([ServiceError], () => payload.compose(new Map([["model", '"changed"']])));
    if (sent === REFUSED) return;
    const told = parsedOr(Buffer.from(sent.bytes() as Uint8Array).toString());
    holds("what is sent is JSON", isObject(told));
    same("the model that is sent", (told as Record<string, unknown>).model, "changed");
    for (const own of ["conversation_id", "memory", "extra", "provider"])
      if (!(isObject(whole.extra) && own in whole.extra))
        holds(`${own} is not sent`, !(own in (told as object)));
  },
};

/** Where brackets close, in pieces and at once. */
export const nesting: FuzzedParser = {
  name: "json-nesting",
  seeds: BODIES,
  words: WORDS,
  check(bytes, chance) {
    const text = bytes.toString("latin1");
    const whole = new JsonNesting();
    whole.feed(text);
    const split = new JsonNesting();
    for (const piece of inPieces(bytes, chance)) split.feed(piece.toString("latin1"));
    same("closed", split.isClosed, whole.isClosed);
    holds("a problem is seen in both", (split.problem === null) === (whole.problem === null));
    const parsed = parsedOr(text);
    if (isObject(parsed) || Array.isArray(parsed)) holds("JSON is closed", whole.isClosed);
  },
};

/** The exact digits of an id, by the runtime's own access to the source. */
const idOf = (value: unknown, source: string | undefined): string => {
  if (value === undefined || value === null) return "null";
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "number") return JSON.stringify(JSON.stringify(value));
  const digits = source ?? String(value);
  const isInteger = /^-?\d{1,19}$/.test(digits) && BigInt.asIntN(64, BigInt(digits)) === BigInt(digits);
  return isInteger ? digits : JSON.stringify(digits);
};

export const rpc: FuzzedParser = {
  name: "json-rpc",
  seeds: [
    '{"jsonrpc":"2.0","id":1,"method":"auth.me","params":{}}',
    '[{"jsonrpc":"2.0","id":9223372036854775807,"method":"a"},{"jsonrpc":"2.0","id":1.50,"method":"b"},1]',
    '{"jsonrpc":"2.0","id":"x","method":"m","params":{"id":12345678901234567890,"a":[{"id":1e2}]}}',
    '{"id":-9223372036854775808,"\\u0069d":1E400,"jsonrpc":"2.0","method":"__proto__"}',
  ],
  words: [...WORDS, '"id":', "12345678901234567890", "1e5", "-0", "0.10", '"\\u0069d":', "[", "],["],
  check(bytes) {
    const text = bytes.toString("utf8");
    const read = orRefused([ServiceError], () => decodeBody(text));
    if (read === REFUSED) return;
    const whole = parseJson(text);
    const elements = read.batch ? (whole as unknown[]) : [whole];
    same("how many", read.requests.length, elements.length);
    for (const [at, element] of elements.entries()) {
      const { idJson } = read.requests[at]!;
      holds("the id is JSON", parsedOr(idJson) !== REFUSED);
      if (!isObject(element)) continue;
      if (typeof element.id !== "number") same("the id", idJson, idOf(element.id, undefined));
      else holds("a number stays a number or becomes a text", /^("?)-?[\d.eE+-]+\1$/.test(idJson));
      if (typeof element.id === "number" && Number.isSafeInteger(element.id) && /^\d+$/.test(idJson))
        holds("the id is the same number", Number(idJson) === element.id);
    }
  },
};

/** What an answer or a stream says that it used. */
export const usage: FuzzedParser = {
  name: "usage",
  seeds: [
    '{"id":"x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}',
    '{"choices":[{"message":{"content":"\\"usage\\":{}"}}],"usage":{"total_tokens":3}}',
    'data: {"type":"done","usage":{"input_tokens":14,"output_tokens":3,"total_tokens":17}}\n\n',
    '{"usage":null}',
  ],
  words: [
    ...WORDS,
    '"usage":',
    "-1",
    "1e308",
    '"prompt_tokens":',
    "9007199254740993",
    "0.5",
    '"total_tokens":"3"',
  ],
  check(bytes) {
    const tail = usageOfTail(new AnswerBody(bytes));
    const text = bytes.toString("utf8");
    const parsed = parsedOr(text) as { usage?: unknown } | typeof REFUSED | null;
    // A name that is written with escapes is not looked for.
    if (parsed !== REFUSED && !text.includes("\\u")) same("by JSON.parse", tail, readUsage(parsed?.usage));
    for (const told of [tail, largestUsage(usagesIn(bytes.toString("latin1")))]) {
      if (told === null || told === ABSURD) continue;
      for (const figure of [told.promptTokens, told.completionTokens])
        holds(`${figure} is a number of tokens`, Number.isInteger(figure) && figure >= 0);
    }
  },
};

const ENTRY: JournalEntry = {
  ...journalEntry(),
  requestId: "0190b2c0-0000-7000-8000-000000000001",
  userId: "0190b2c0-0000-7000-8000-000000000002",
  keyId: null,
  model: 'm\n"é',
};

/** The journal as a crash or a disk may leave it: what is read is what was written, or nothing. */
export const journal: FuzzedParser = {
  name: "journal",
  seeds: [encodeEntry(ENTRY), encodeEntry(ENTRY) + encodeEntry({ ...ENTRY, channel: null, budgets: 3 })],
  words: [...WORDS, "\n", "\r\n"],
  check(bytes) {
    const { entries, damaged, length } = decodeLines(bytes, 100);
    holds("only whole lines are used", length === 0 || bytes[length - 1] === 10);
    holds("no line is lost", entries.length + damaged.length <= 100);
    for (const entry of entries) {
      const { entries: again } = decodeLines(Buffer.from(encodeEntry(entry)), 1);
      same("read, written and read again", again[0], entry);
      for (const figure of [entry.promptTokens, entry.completionTokens, entry.costNanoUsd ?? 0])
        holds("figures are numbers that can be charged", Number.isFinite(figure) && figure >= 0);
    }
  },
};
