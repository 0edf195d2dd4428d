import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { politeHandler, startUpstream } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
afterEach(() => bench.upstream.answer(politeHandler));

const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };

test("messages are checked alike over REST and in chat.send, and the field is named", async () => {
  const bad: [unknown, string][] = [
    [1, "messages.0"],
    [null, "messages.0"],
    ["hello", "messages.0"],
    [{ role: "user" }, "messages.0.content"],
    [{ role: "user", content: 7 }, "messages.0.content"],
    [{ role: "tool", tool_call_id: "a", content: null }, "messages.0.content"],
    [{ content: "x" }, "messages.0.role"],
    [{ role: "robot", content: "x" }, "messages.0.role"],
    [{ role: "user", content: "x", images: "QUJD" }, "messages.0.images"],
    [{ role: "assistant", content: "x", tool_calls: {} }, "messages.0.tool_calls"],
  ];
  const before = bench.upstream.requests.length;
  for (const [message, field] of bad) {
    const response = await bench.chat({ messages: [message] });
    expect(response.status, field).toBe(400);
    expect((await response.json()).error.message).toContain(field);
    const params = { model: "m", messages: [message] };
    const { error } = await bench.call("chat.send", params, bench.token);
    expect(error.message, JSON.stringify(message)).toContain(field);
  }
  expect(bench.upstream.requests.length).toBe(before);
  const good = [
    { role: "system", content: "Füße" },
    { role: "user", content: [image] },
    { role: "user", images: ["QUJD"] },
    { role: "assistant", content: null, tool_calls: [{ id: "a", type: "function", function: {} }] },
    { role: "tool", tool_call_id: "a", content: "" },
  ];
  expect((await bench.chat({ messages: good })).status).toBe(200);
  expect(bench.upstream.requests.at(-1)!.json.messages).toEqual(good);
});

test("a model id that is too long is called that", async () => {
  const { error } = await (await bench.chat({ model: "x".repeat(300) })).json();
  expect(error.message).toContain("`model` is too long");
});

test("OpenRouter's provider object reaches it in extra, beside the gateway's own hint", async () => {
  const provider = { order: ["anthropic"], allow_fallbacks: false };
  const response = await bench.chat({ provider: "first", extra: { provider, top_k: 3 } });
  expect(response.status).toBe(200);
  expect(bench.upstream.requests.at(-1)!.json).toMatchObject({ provider, top_k: 3 });
});

test("a provider hint does not move a conversation whose backend is healthy", async () => {
  const second = startUpstream({ models: ["m"] });
  await bench.addBackend({ name: "second", type: "external", url: second.url });
  try {
    const { id } = await bench.rpc("conversations.create", {}, bench.token);
    const ask = async (rest: Record<string, unknown> = {}) => {
      const [before, other] = [bench.upstream.requests.length, second.requests.length];
      expect((await bench.chat({ conversation_id: id, ...rest })).status).toBe(200);
      return bench.upstream.requests.length > before
        ? "first"
        : second.requests.length > other
          ? "second"
          : "";
    };
    const bound = await ask();
    const hinted = bound === "first" ? "second" : "first";
    expect(await ask({ provider: hinted })).toBe(hinted);
    for (let i = 0; i < 3; i++) expect(await ask()).toBe(bound);
  } finally {
    await bench.removeBackend("second");
    second.stop();
  }
});

test("a tier that cannot be looked up refuses nobody", async () => {
  const person = await bench.signIn("newcomer");
  const { db } = bench.app.rooms.usage.store;
  await db.run("ALTER TABLE users RENAME COLUMN tier TO tier_away", []);
  try {
    const messages = [{ role: "user", content: "x" }];
    const { result, error } = await bench.call("chat.send", { model: "m", messages }, person);
    expect(error).toBeUndefined();
    expect(result.stream_id).toBeString();
  } finally {
    await db.run("ALTER TABLE users RENAME COLUMN tier_away TO tier", []);
  }
});
