/** What is JSON at the doors that read bodies: the same that `JSON.parse` takes, of the whole text. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { JSON_CASES, type JsonCase } from "./json-cases.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
/** One for each test: a key may make a thousand requests a minute. */
let key: string;
beforeEach(async () => {
  ({ key } = await bench.rpc("keys.create", { name: "json" }, bench.token));
});

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The value of the bytes, or undefined where they are not JSON. */
function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(strictUtf8.decode(bytes));
  } catch {
    return undefined;
  }
}

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}
/** Deeper bodies are refused, whoever could read them. */
const DEPTH_MAX = 100;

/** The case where a value may stand. */
const within = (before: string, { bytes }: JsonCase, after: string): Buffer =>
  Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);

const PLACES: readonly [where: string, place: (each: JsonCase) => Buffer][] = [
  [
    "in a field",
    (each) => within('{"model":"m","messages":[{"role":"user","content":"hi"}],"user_data":', each, "}"),
  ],
  [
    "before the fields",
    (each) => within('{"user_data":', each, ',"model":"m","messages":[{"role":"user","content":"hi"}]}'),
  ],
  [
    "in a message",
    (each) => within('{"model":"m","messages":[{"role":"user","content":"hi","name_data":', each, "}]}"),
  ],
];

const send = (path: string, body: Buffer, bearer = key) =>
  fetch(bench.url + path, {
    method: "POST",
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    body: body as unknown as BodyInit,
  });

test("the table says of each text what JSON.parse says", () => {
  const wrong = JSON_CASES.filter(
    ({ verdict, bytes }) => verdict !== "open" && (parsed(bytes) !== undefined) !== (verdict === "valid"),
  );
  expect(wrong.map(({ what }) => what)).toEqual([]);
  expect(JSON_CASES.length).toBeGreaterThanOrEqual(300);
});

describe("POST /v1/chat/completions", () => {
  test.each(PLACES)(
    "takes and refuses the same texts %s, and passes on what they mean",
    async (_where, place) => {
      const differences: string[] = [];
      for (const each of JSON_CASES) {
        const body = place(each);
        const value = parsed(body);
        const isTaken = value !== undefined && depthOf(value) <= DEPTH_MAX;
        const before = bench.upstream.requests.length;
        const { status } = await send("/v1/chat/completions", body);
        if (status !== (isTaken ? 200 : 400)) differences.push(`${each.what}: ${status}`);
        const received = bench.upstream.requests[before];
        if (!isTaken && received) differences.push(`${each.what}: was sent upstream`);
        const { user_data, messages } = (received?.json ?? {}) as Record<string, unknown>;
        if (isTaken && !Bun.deepEquals({ user_data, messages }, pick(value), true))
          differences.push(`${each.what}: arrived as ${received?.text.slice(0, 200)}`);
      }
      expect(differences).toEqual([]);
    },
    120_000,
  );

  test("refuses each of them as a whole body, since none is a chat", async () => {
    const differences: string[] = [];
    for (const each of JSON_CASES) {
      const answer = await send("/v1/chat/completions", each.bytes);
      const { error } = (await answer.json()) as { error?: { message: string } };
      if (answer.status !== 400 || !error?.message) differences.push(`${each.what}: ${answer.status}`);
    }
    expect(differences).toEqual([]);
  }, 120_000);
});

const pick = (value: unknown) => {
  const { user_data, messages } = value as Record<string, unknown>;
  return { user_data, messages };
};

describe("POST /api/rpc", () => {
  test("takes and refuses the same texts", async () => {
    const differences: string[] = [];
    for (const each of JSON_CASES) {
      const body = within('{"jsonrpc":"2.0","id":"x","method":"system.status","params":{"data":', each, "}}");
      const value = parsed(body);
      const answer = (await (await send("/api/rpc", body, bench.token)).json()) as {
        error?: { code: number };
        result?: unknown;
      };
      const outcome = answer.error?.code ?? "a result";
      const expected =
        value === undefined
          ? isTooDeep(body)
            ? -32600
            : -32700
          : depthOf(value) > DEPTH_MAX
            ? -32600
            : "a result";
      if (outcome !== expected) differences.push(`${each.what}: ${outcome} instead of ${expected}`);
    }
    expect(differences).toEqual([]);
  }, 120_000);

  test("as whole bodies: what is JSON is a bad request, what is not is a parse error", async () => {
    const differences: string[] = [];
    for (const each of JSON_CASES) {
      const value = parsed(each.bytes);
      const answer = (await (await send("/api/rpc", each.bytes, bench.token)).json()) as unknown;
      const codes = [answer].flat().map((one) => (one as { error?: { code: number } }).error?.code);
      const isRead = value !== undefined || isTooDeep(each.bytes);
      if (!codes.every((code) => code === (isRead ? -32600 : -32700)))
        differences.push(`${each.what}: ${codes}`);
    }
    expect(differences).toEqual([]);
  }, 120_000);
});

/** Refused for its depth before anything else is looked at; counts brackets in strings too, which no case has many of. */
function isTooDeep(bytes: Buffer): boolean {
  let depth = 0;
  let deepest = 0;
  for (const byte of bytes) {
    if (byte === 0x5b || byte === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return deepest > DEPTH_MAX;
}
