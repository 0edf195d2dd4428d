import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { chunk, DONE, politeHandler } from "@model-gateway/testing/upstream.ts";
import { startFakeEngine } from "../support/engine.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
afterEach(() => bench.upstream.answer(politeHandler));

// biome-ignore lint/suspicious/noExplicitAny: notifications are looked into freely
type Notification = { method: string; params: any };

/** Notifications of a session until the last one. */
async function heard(streamId: string): Promise<Notification[]> {
  const response = await fetch(`${bench.url}/api/rpc/events?session=${streamId}`);
  const notifications: Notification[] = [];
  let text = "";
  for await (const piece of response.body!) {
    text += new TextDecoder().decode(piece, { stream: true });
    const lines = text.split("\n");
    text = lines.pop()!;
    for (const line of lines.filter((each) => each.startsWith("data: "))) {
      notifications.push(JSON.parse(line.slice(6)));
      if (notifications.at(-1)!.params.done) return notifications;
    }
  }
  return notifications;
}

const send = (params: Record<string, unknown> = {}) =>
  bench.rpc(
    "chat.send",
    { model: "m", messages: [{ role: "user", content: "tell me more" }], ...params },
    bench.token,
  );

describe("chat.send", () => {
  test("returns at once and notifies one token at a time", async () => {
    const { stream_id, memory } = await send();
    expect(memory).toBe("disabled");
    const notifications = await heard(stream_id);
    expect(notifications.every(({ method }) => method === "chat.stream")).toBe(true);
    const pieces = notifications.slice(0, -1).map(({ params }) => params);
    expect(pieces.map(({ content }) => content).join("")).toBe("tell me more");
    expect(pieces.filter(({ content }) => content).length).toBe(3);
    expect(pieces.every((piece) => piece.finish_reason === null && piece.stream_id === stream_id)).toBe(true);
    expect(notifications.at(-1)!.params).toEqual({
      stream_id,
      content: "",
      done: true,
      finish_reason: "stop",
      usage: { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 },
    });
    expect((await bench.usageRows())[0]).toMatchObject({ model: "m", backend: "rpc", total_tokens: 13 });
  });

  test("assembles the conversation's history and keeps the turn", async () => {
    const { id } = await bench.rpc("conversations.create", {}, bench.token);
    for (const content of ["one", "two"]) {
      const { stream_id } = await send({ conversation_id: id, messages: [{ role: "user", content }] });
      await heard(stream_id);
    }
    expect(
      bench.upstream.requests.at(-1)!.json.messages.map(({ content }: { content: string }) => content),
    ).toEqual(["one", "one", "two"]);
    const { messages } = await bench.rpc("conversations.get", { conversation_id: id }, bench.token);
    expect(messages.map(({ role }: { role: string }) => role)).toEqual([
      "user",
      "assistant",
      "user",
      "assistant",
    ]);
  });

  test("carries tool calls and reasoning", async () => {
    bench.upstream.answer((_, reply) =>
      reply.stream([
        chunk({ delta: { role: "assistant", reasoning_content: "hm" } }),
        chunk({
          delta: {
            tool_calls: [{ index: 0, id: "c", type: "function", function: { name: "f", arguments: "{}" } }],
          },
        }),
        chunk({ finish_reason: "tool_calls" }),
        DONE,
      ]),
    );
    const { stream_id } = await send({
      tools: [{ type: "function", function: { name: "f" } }],
      extra: { top_k: 3 },
    });
    const notifications = await heard(stream_id);
    expect(notifications[0]!.params).toMatchObject({ role: "assistant", reasoning: "hm", content: "" });
    expect(notifications[1]!.params.tool_calls[0].function.name).toBe("f");
    expect(notifications.at(-1)!.params.finish_reason).toBe("tool_calls");
    expect(bench.upstream.requests.at(-1)!.json.top_k).toBe(3);
  });

  test("reports a failure on the stream, before and after the first token", async () => {
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "no luck" } }, 500));
    const before = (await heard((await send()).stream_id)).at(-1)!.params;
    expect(before.error).toEqual({ code: -32000, message: "upstream 500: no luck" });
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "begun" } }));
      await Bun.sleep(20);
      reply.reset();
    });
    const after = await heard((await send()).stream_id);
    expect(after[0]!.params.content).toBe("begun");
    expect(after.at(-1)!.params).toMatchObject({ done: true, error: { code: -32000 } });
  });

  test("refuses at once what cannot be sent", async () => {
    const call = (params: Record<string, unknown>) =>
      bench.call(
        "chat.send",
        { model: "m", messages: [{ role: "user", content: "x" }], ...params },
        bench.token,
      );
    expect((await call({ model: "nobody" })).error).toMatchObject({
      code: -32000,
      message: "No backend available for model: nobody",
    });
    expect((await call({ conversation_id: crypto.randomUUID() })).error.code).toBe(-32000);
    expect((await call({ messages: [] })).error.code).toBe(-32602);
    expect((await bench.call("chat.send", { model: "m", messages: [] })).error.code).toBe(-32005);
  });

  test("charges each call of a batch", async () => {
    const before = (await bench.usageRows()).length;
    const one = {
      jsonrpc: "2.0",
      method: "chat.send",
      params: { model: "m", messages: [{ role: "user", content: "x" }] },
    };
    const response = await fetch(`${bench.url}/api/rpc`, {
      method: "POST",
      headers: { authorization: `Bearer ${bench.token}` },
      body: JSON.stringify([
        { ...one, id: 1 },
        { ...one, id: 2 },
      ]),
    });
    const answers = (await response.json()) as { result: { stream_id: string } }[];
    await Promise.all(answers.map(({ result }) => heard(result.stream_id)));
    expect((await bench.usageRows()).length).toBe(before + 2);
  });
});

describe("engine.invoke", () => {
  test("passes a method on and returns the raw result, for administrators", async () => {
    const engine = startFakeEngine({
      models: [{ id: "robot" }],
      handlers: { "sensor.ingest": ({ params }) => ({ seen: params }) },
    });
    try {
      await bench.addBackend({ name: "robot", type: "engine", url: engine.url });
      const params = { model: "robot", method: "sensor.ingest", params: { x: [1, 2] } };
      expect(await bench.rpc("engine.invoke", params, bench.token)).toEqual({ seen: { x: [1, 2] } });
      // Several callers at 30 Hz are a few hundred calls; none may fail or wait for another.
      const calls = Array.from({ length: 200 }, (_, n) =>
        bench.rpc("engine.invoke", { ...params, params: { n } }, bench.token),
      );
      expect((await Promise.all(calls)).map(({ seen }) => seen.n)).toEqual(calls.map((_, n) => n));
      const plain = await bench.signIn("eve");
      expect((await bench.call("engine.invoke", params, plain)).error.code).toBe(-32007);
      const chat = await bench.chat({
        model: "robot",
        messages: [{ role: "user", content: "hello engine" }],
      });
      expect((await chat.json()).choices[0].message.content).toBe("hello engine");
    } finally {
      await bench.removeBackend("robot");
      engine.stop();
    }
  });

  test("is refused by backends without a generic channel", async () => {
    const { error } = await bench.call("engine.invoke", { model: "m", method: "x" }, bench.token);
    expect(error.code).toBe(-32000);
    expect(error.message).toContain("does not support generic invocation");
  });
});
