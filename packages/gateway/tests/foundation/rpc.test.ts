import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
let token: string;
beforeAll(async () => {
  gateway = await bootGateway();
  token = await gateway.signIn("ada");
});
afterAll(() => gateway.stop());

async function post(body: BodyInit, headers: Record<string, string> = {}) {
  const response = await fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}`, ...headers },
    body,
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}
const errorCode = (text: string) => (JSON.parse(text) as { error?: { code: number } }).error?.code;

describe("ids are echoed with their type", () => {
  const cases: [string, string][] = [
    ["null", "null"],
    ['"abc"', '"abc"'],
    ['""', '""'],
    ["7", "7"],
    ["-3", "-3"],
    ["9007199254740993", "9007199254740993"],
    ["9223372036854775807", "9223372036854775807"],
    ["-9223372036854775808", "-9223372036854775808"],
    ["9223372036854775808", '"9223372036854775808"'],
    ["1.5", '"1.5"'],
    ["1.0", '"1.0"'],
    ["1e3", '"1e3"'],
    ['{"a":[1]}', '"{\\"a\\":[1]}"'],
    ["[1,2]", '"[1,2]"'],
    ["true", '"true"'],
  ];
  for (const [sent, echoed] of cases) {
    test(`${sent} comes back as ${echoed}`, async () => {
      const { text } = await post(`{"jsonrpc":"2.0","id":${sent},"method":"auth.me"}`);
      expect(text).toStartWith(`{"jsonrpc":"2.0","id":${echoed},"result":{`);
    });
  }
  test("an omitted id is null, also in an error", async () => {
    expect((await post('{"jsonrpc":"2.0","method":"auth.me"}')).text).toStartWith(
      '{"jsonrpc":"2.0","id":null,"result"',
    );
    expect((await post('{"jsonrpc":"2.0","id":9007199254740993,"method":"nope"}')).text).toStartWith(
      '{"jsonrpc":"2.0","id":9007199254740993,"error"',
    );
  });
  test("an id whose key is written with escapes keeps its digits", async () => {
    const { text } = await post('{"jsonrpc":"2.0","\\u0069d":9007199254740993,"method":"auth.me"}');
    expect(text).toStartWith('{"jsonrpc":"2.0","id":9007199254740993,');
  });
  test("a delicate id inside params does not disturb the outer one", async () => {
    const { text } = await post(
      '{"jsonrpc":"2.0","params":{"id":9007199254740993.5},"id":5,"method":"auth.me"}',
    );
    expect(text).toStartWith('{"jsonrpc":"2.0","id":5,');
  });
});

test("each element of a batch has its own id, whatever else is called id", async () => {
  const { text } = await post(
    ` [1, {"id":1.5,"x":"id","method":"a\\"id\\":7.5"}, ["id",2.5], {"params":{"id":3.5},"id":9007199254740993},
      {"id":4.5,"id":5}, {"id":6.5,"id":"six"}, {"x":[{"id":1.5}],"id":-7e1}]`,
  );
  const ids = [...text.matchAll(/"id":("(?:[^"]*)"|[^,]*),"error"/g)].map(([, id]) => id);
  expect(ids).toEqual(["null", '"1.5"', "null", "9007199254740993", "5", '"six"', '"-7e1"']);
});

describe("requests that cannot run", () => {
  const cases: [string, BodyInit, number][] = [
    ["invalid JSON", "{not json", -32700],
    ["an empty body", "", -32700],
    ["invalid UTF-8", new Uint8Array([0x7b, 0xff, 0x7d]), -32700],
    ["no method", '{"jsonrpc":"2.0","id":1}', -32600],
    ["a numeric method", '{"jsonrpc":"2.0","id":1,"method":5}', -32600],
    ["the wrong version", '{"jsonrpc":"1.0","id":1,"method":"auth.me"}', -32600],
    ["a bare string", '"hello"', -32600],
    ["positional params", '{"jsonrpc":"2.0","id":1,"method":"auth.me","params":[1]}', -32602],
    ["an empty batch", "[]", -32600],
    ["an unknown method", '{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601],
    ["a prototype key as method", '{"jsonrpc":"2.0","id":1,"method":"__proto__"}', -32601],
    [
      "200 levels of nesting",
      `{"jsonrpc":"2.0","id":1,"method":"auth.me","params":{"a":${"[".repeat(200)}${"]".repeat(200)}}}`,
      -32600,
    ],
    ["half a million open brackets", "[".repeat(500_000), -32600],
  ];
  for (const [title, body, code] of cases) {
    test(`${title}: ${code}`, async () => {
      const { status, text } = await post(body);
      expect(status).toBe(200);
      expect(errorCode(text)).toBe(code);
    });
  }
  test("an unknown method is named in the message", async () => {
    const { error } = await gateway.call("no.such", {}, token);
    expect(error.message).toContain("no.such");
  });
  test("a body over 1 MiB is 413 with an error object, with and without a declared length", async () => {
    const large = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "auth.me",
      params: { pad: "x".repeat(2 * 1024 * 1024) },
    });
    const declared = await post(large);
    expect([declared.status, errorCode(declared.text)]).toEqual([413, -32600]);
    const chunked = await post(new Blob([large]).stream());
    expect([chunked.status, errorCode(chunked.text)]).toEqual([413, -32600]);
  });
  test("__proto__ in params changes nothing", async () => {
    const { text } = await post(
      '{"jsonrpc":"2.0","id":1,"method":"auth.me","params":{"__proto__":{"isAdmin":true},"constructor":1}}',
    );
    expect(JSON.parse(text).result.email).toBe("ada@example.com");
    expect(({} as Record<string, unknown>).isAdmin).toBeUndefined();
  });
});

describe("batches", () => {
  test("are answered in order, element by element, bad ones in their place", async () => {
    const { text } = await post(
      '[{"jsonrpc":"2.0","id":"a","method":"conversations.create","params":{"title":"one"}},1,{"jsonrpc":"2.0","id":9007199254740993,"method":"conversations.list"},{"id":3}]',
    );
    const answers = JSON.parse(text);
    expect(answers.map((answer: { error?: { code: number } }) => answer.error?.code)).toEqual([
      undefined,
      -32600,
      undefined,
      -32600,
    ]);
    expect(answers[0].id).toBe("a");
    expect(answers[2].result.map((item: { title: string }) => item.title)).toContain("one");
    expect(text).toContain('"id":9007199254740993');
  });
  test("hold at most 100 elements", async () => {
    const one = '{"jsonrpc":"2.0","id":1,"method":"system.status"}';
    expect(JSON.parse((await post(`[${Array(100).fill(one).join(",")}]`)).text)).toHaveLength(100);
    expect(errorCode((await post(`[${Array(101).fill(one).join(",")}]`)).text)).toBe(-32600);
  });
});

describe("rights", () => {
  const adminMethods = ["providers.add", "providers.update", "providers.remove", "providers.test"];
  test("someone not signed in learns nothing of a method's privilege", async () => {
    for (const method of [...adminMethods, "auth.me", "keys.list"]) {
      const { error } = await gateway.call(method, {});
      expect([error.code, error.message]).toEqual([-32005, "authentication required"]);
    }
  });
  test("someone signed in without the right gets -32007 with a hint", async () => {
    const other = await gateway.signIn("grace");
    for (const method of adminMethods) {
      const { error } = await gateway.call(method, {}, other);
      expect(error.code).toBe(-32007);
      expect(error.message).toContain("administrators");
    }
  });
  test("public methods need no bearer, and a bad one does not harm them", async () => {
    expect((await gateway.call("system.status")).result.uptime_seconds).toBeGreaterThanOrEqual(0);
    expect((await gateway.call("providers.list", {}, "garbage")).result.length).toBeGreaterThan(5);
  });
});

test("every answer carries a request id", async () => {
  const { headers } = await post('{"jsonrpc":"2.0","id":1,"method":"auth.me"}');
  expect(headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  expect(headers.get("content-type")).toBe("application/json");
});

test("unknown params are ignored; wrong types name their field", async () => {
  expect((await gateway.call("keys.create", { name: "k", colour: "red" }, token)).result.name).toBe("k");
  const { error } = await gateway.call("keys.create", { name: 5, project: [] }, token);
  expect(error.code).toBe(-32602);
  expect(error.data?.fields).toEqual(["name", "project"]);
});

test("GET without an upgrade says what to do, and other verbs are refused", async () => {
  expect((await fetch(`${gateway.url}/api/rpc`)).status).toBe(426);
  const deleted = await fetch(`${gateway.url}/api/rpc`, { method: "DELETE" });
  expect([deleted.status, deleted.headers.get("allow")]).toEqual([405, "GET, POST"]);
});
