import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import OpenAI from "openai";
import type { Backend } from "../../src/backends/contract.ts";
import { engine as engineKind } from "../../src/backends/engine/index.ts";
import { localServer } from "../../src/backends/local-server/index.ts";
import { backendConfig, chatCall, modelCall, realDeps, responding } from "../support/backends.ts";
import { startFakeEngine } from "../support/engine.ts";
import { startFakeOllama } from "../support/ollama.ts";

/** What kinds with a wire format of their own write must satisfy the strictest reader there is. */
const cleanup: (() => unknown)[] = [];
const clients: Record<string, OpenAI> = {};

/** The least that can stand between a client and a backend. */
function clientOf(kind: Backend): OpenAI {
  const backend = responding(kind);
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const body = (await request.json()) as Record<string, unknown>;
      return request.url.endsWith("/embeddings")
        ? backend.embed!(modelCall(body))
        : backend.chat!(chatCall(body));
    },
  });
  cleanup.push(() => server.stop(true));
  return new OpenAI({ apiKey: "none", baseURL: `http://127.0.0.1:${server.port}`, maxRetries: 0 });
}

beforeAll(async () => {
  const toolLines = await Bun.file(join(import.meta.dir, "fixtures/ollama-chat-tools.ndjson")).text();
  const ollama = startFakeOllama();
  ollama.on("/api/chat", ({ body }) =>
    body.stream === false ? Response.json(JSON.parse(toolLines.split("\n")[2]!)) : new Response(toolLines),
  );
  const call = (args: unknown) => ({ id: "call_9f", function: { name: "weather", arguments: args } });
  const finish = {
    finish_reason: "tool_calls",
    usage: { prompt_tokens: 169, completion_tokens: 35, total_tokens: 204 },
  };
  const engine = startFakeEngine({
    handlers: {
      "Engine.Chat": () => ({
        message: { content: null, tool_calls: [call({ city: "Zürich" })] },
        ...finish,
      }),
      "Engine.ChatStart": ({ params: { stream_id }, peer }) => {
        const send = (chunk: object) => peer.notify("Engine.ChatChunk", { stream_id, ...chunk });
        send({ delta: { reasoning: "The user wants the weather." }, done: false });
        send({ delta: { tool_calls: [call('{"city":')] }, done: false });
        send({ delta: { tool_calls: [{ index: 0, function: { arguments: '"Zürich"}' } }] }, done: false });
        send({ delta: {}, done: true, ...finish });
        return { stream_id };
      },
    },
  });
  const engineBackend = engineKind.create(backendConfig("engine", engine.url), realDeps);
  await engineBackend.probe(AbortSignal.timeout(10_000));
  cleanup.push(
    () => engineBackend.close(),
    () => engine.stop(),
    () => ollama.stop(),
  );
  clients.engine = clientOf(engineBackend);
  clients["local-server"] = clientOf(localServer.create(backendConfig("local-server", ollama.url), realDeps));
});
afterAll(async () => {
  for (const undo of cleanup) await undo();
});

const messages = [{ role: "user" as const, content: "Weather in Zürich?" }];
type FunctionCall = { function: { name: string; arguments: string } };

for (const kind of ["local-server", "engine"]) {
  test(`${kind}: the streaming helper assembles reasoning, tool calls, finish and usage`, async () => {
    const stream = clients[kind]!.chat.completions.stream({
      model: "m",
      messages,
      stream_options: { include_usage: true },
    });
    let reasoning = "";
    stream.on("chunk", (chunk) => {
      const delta = chunk.choices[0]?.delta as { reasoning_content?: string } | undefined;
      reasoning += delta?.reasoning_content ?? "";
    });
    const { choices, usage } = await stream.finalChatCompletion();
    expect(reasoning).toBe("The user wants the weather.");
    expect(choices[0]!.finish_reason).toBe("tool_calls");
    const call = choices[0]!.message.tool_calls![0]! as FunctionCall;
    expect(call.function.name).toBe("weather");
    expect(JSON.parse(call.function.arguments)).toMatchObject({ city: "Zürich" });
    expect(usage).toMatchObject({ prompt_tokens: 169, completion_tokens: 35, total_tokens: 204 });
  });

  test(`${kind}: a whole answer and embeddings`, async () => {
    const client = clients[kind]!;
    const { choices } = await client.chat.completions.create({ model: "m", messages });
    const call = choices[0]!.message.tool_calls![0]! as FunctionCall;
    expect(JSON.parse(call.function.arguments)).toMatchObject({ city: "Zürich" });
    const { data } = await client.embeddings.create({
      model: "m",
      input: ["abc"],
      encoding_format: "float",
    });
    expect(data[0]!.embedding.slice(0, 2)).toEqual([3, 0.5]);
  });
}
