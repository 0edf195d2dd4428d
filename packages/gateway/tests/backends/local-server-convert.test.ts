import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { BackendError } from "../../src/backends/contract.ts";
import { convertedStream, StreamObjects } from "../../src/backends/dialects/translate.ts";
import { ollama, ollamaRequest } from "../../src/backends/local-server/chat.ts";
import { fromOllamaEmbed, modelsOfTags, toOllamaEmbed } from "../../src/backends/local-server/index.ts";
import { ChatEvents, chatIdentity } from "../../src/backends/shared/chat-events.ts";
import { eventsOf } from "../support/backends.ts";

const identity = chatIdentity({ requestId: "r1", model: "m", nowMs: 1_763_000_000_500 });
const request = (body: Record<string, unknown>) => ollamaRequest(body, { model: "m", stream: true });
const fixture = (name: string) => Bun.file(join(import.meta.dir, "fixtures", name)).bytes();

/** All events of a recorded stream, fed to the converter in the given pieces. */
function replay(pieces: readonly Uint8Array[]): string {
  const lines = new StreamObjects("lines");
  const converter = ollama.stream();
  const chat = new ChatEvents(identity);
  let text = "";
  const take = (found: Record<string, unknown>[]) => {
    for (const line of found) {
      for (const delta of converter.deltas(line)) text += chat.delta(delta);
      if (converter.answer) text += chat.end(converter.answer.finishReason, converter.answer.usage);
    }
  };
  for (const piece of pieces) take(lines.push(piece));
  take(lines.end());
  return text;
}

describe("requests", () => {
  test("only what the client set becomes an option", () => {
    const plain = request({ model: "m", messages: [{ role: "user", content: "hi" }], stream: true });
    expect(plain).toEqual({ model: "m", messages: [{ role: "user", content: "hi" }], stream: true });
    expect(
      request({
        messages: [],
        temperature: 0,
        top_p: 0.9,
        max_tokens: 50,
        stop: "END",
        seed: 7,
        presence_penalty: null,
        top_k: 40,
        user: "ignored",
      }).options,
    ).toEqual({ temperature: 0, top_p: 0.9, num_predict: 50, stop: ["END"], seed: 7, top_k: 40 });
    expect(request({ messages: [], max_tokens: 1, max_completion_tokens: 2 }).options).toEqual({
      num_predict: 2,
    });
  });

  test("`options` never overrides a field of its own", () => {
    const { options } = request({
      messages: [],
      temperature: 0.2,
      max_tokens: 10,
      options: { temperature: 1, num_predict: 999, num_ctx: 8192 },
    });
    expect(options).toEqual({ temperature: 0.2, num_predict: 10, num_ctx: 8192 });
    expect(request({ messages: [], options: "nonsense" }).options).toBeUndefined();
  });

  test("response_format, reasoning effort, native fields and tools", () => {
    const schema = { type: "object", properties: { a: { type: "number" } } };
    expect(request({ messages: [], response_format: { type: "json_object" } }).format).toBe("json");
    expect(
      request({ messages: [], response_format: { type: "json_schema", json_schema: { name: "x", schema } } })
        .format,
    ).toEqual(schema);
    expect(request({ messages: [], response_format: { type: "text" } }).format).toBeUndefined();
    expect(request({ messages: [], reasoning_effort: "none" }).think).toBe(false);
    expect(request({ messages: [], reasoning_effort: "high" }).think).toBe("high");
    expect(request({ messages: [], reasoning: { effort: "xhigh" } }).think).toBe("max");
    expect(request({ messages: [], reasoning_effort: "high", think: true, keep_alive: "10m" })).toMatchObject(
      {
        think: true,
        keep_alive: "10m",
      },
    );
    const tools = [{ type: "function", function: { name: "f", parameters: schema } }];
    expect(request({ messages: [], tools }).tools).toEqual(tools);
    expect(request({ messages: [], tools, tool_choice: "none" }).tools).toBeUndefined();
  });

  test("content parts and the images extension become text and bare base64", () => {
    const { messages } = request({
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "what is" },
            { type: "image_url", image_url: { url: "data:image/png;base64,AAAA", detail: "low" } },
            { type: "text", text: "this?" },
            { type: "input_audio", input_audio: { data: "EEEE", format: "wav" } },
          ],
        },
        {
          role: "user",
          content: "and",
          images: ["data:image/jpeg;base64,BBBB", "CCCC", { data_base64: "DDDD" }],
        },
        { role: "developer", content: "be brief" },
      ],
    });
    expect(messages).toEqual([
      { role: "user", content: "what is\nthis?", images: ["AAAA", "EEEE"] },
      { role: "user", content: "and", images: ["BBBB", "CCCC", "DDDD"] },
      { role: "system", content: "be brief" },
    ]);
  });

  test("tool calls go out with object arguments, results with the tool's name", () => {
    const { messages } = request({
      messages: [
        {
          role: "assistant",
          content: null,
          reasoning_content: "hm",
          tool_calls: [
            { id: "c1", type: "function", function: { name: "weather", arguments: '{"city":"Zürich"}' } },
            { id: "c2", type: "function", function: { name: "clock", arguments: "" } },
          ],
        },
        { role: "tool", tool_call_id: "c1", content: "rain" },
        { role: "tool", tool_call_id: "c9", name: "other", content: "x" },
      ],
    });
    expect(messages).toEqual([
      {
        role: "assistant",
        content: "",
        thinking: "hm",
        tool_calls: [
          { id: "c1", function: { index: 0, name: "weather", arguments: { city: "Zürich" } } },
          { id: "c2", function: { index: 1, name: "clock", arguments: {} } },
        ],
      },
      { role: "tool", content: "rain", tool_call_id: "c1", tool_name: "weather" },
      { role: "tool", content: "x", tool_call_id: "c9", tool_name: "other" },
    ]);
  });

  test("what the native API cannot take is refused by the name of its field", () => {
    const refusal = (messages: unknown[]) => {
      try {
        request({ messages });
      } catch (error) {
        expect(error).toBeInstanceOf(BackendError);
        expect((error as BackendError).kind).toBe("request");
        return (error as Error).message;
      }
      throw new Error("it was accepted");
    };
    const image = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
    expect(refusal([{ role: "user", content: [image] }])).toContain("messages.0.content.0.image_url");
    const file = { type: "file", file: { file_data: "data:application/pdf;base64,AAAA" } };
    expect(refusal([{ role: "user", content: [file] }])).toContain("messages.0.content.0.file");
  });

  test("arguments that a model wrote badly go back as it wrote them, as to every vendor", () => {
    const call = { id: "c", function: { name: "f", arguments: "[1" } };
    const { messages } = request({ messages: [{ role: "assistant", tool_calls: [call] }] });
    expect(messages).toMatchObject([{ tool_calls: [{ function: { arguments: { INVALID_JSON: "[1" } } }] }]);
  });
});

describe("answers", () => {
  test("a recorded text stream gives the same events wherever it is split", async () => {
    const bytes = await fixture("ollama-chat-text.ndjson");
    const whole = replay([bytes]);
    const events = eventsOf(whole);
    expect(events[0]).toEqual({
      id: "chatcmpl-r1",
      object: "chat.completion.chunk",
      created: 1_763_000_000,
      model: "m",
      choices: [{ index: 0, delta: { role: "assistant", content: "Grüße" }, finish_reason: null }],
    });
    const text = events.map((event) => event.choices?.[0]?.delta.content ?? "").join("");
    expect(text).toBe("Grüße, 世界 👋🏽\n");
    expect(events.at(-3).choices).toEqual([{ index: 0, delta: {}, finish_reason: "stop" }]);
    expect(events.at(-2)).toMatchObject({
      choices: [],
      usage: { prompt_tokens: 26, completion_tokens: 7, total_tokens: 33 },
    });
    expect(events.at(-1)).toBe("[DONE]");
    for (let at = 1; at < bytes.length; at++)
      expect(replay([bytes.subarray(0, at), bytes.subarray(at)])).toBe(whole);
    expect(replay([...bytes].map((byte) => Uint8Array.of(byte)))).toBe(whole);
  });

  test("thinking and tool calls: reasoning_content, text arguments, running index, ids", async () => {
    const events = eventsOf(replay([await fixture("ollama-chat-tools.ndjson")]));
    const deltas = events.flatMap((event) => event.choices?.[0]?.delta ?? []);
    expect(deltas.map((delta) => delta.reasoning_content ?? "").join("")).toBe("The user wants the weather.");
    expect(deltas.flatMap((delta) => delta.tool_calls ?? [])).toEqual([
      {
        index: 0,
        id: "call_9f",
        type: "function",
        function: { name: "weather", arguments: '{"city":"Zürich","days":2}' },
      },
      {
        index: 1,
        id: expect.stringMatching(/^call_\w{24}$/),
        type: "function",
        function: { name: "clock", arguments: "{}" },
      },
    ]);
    expect(events.at(-3).choices[0].finish_reason).toBe("tool_calls");
  });

  test("an error line ends the stream as an error, without [DONE]", async () => {
    const stream = await convertedStream({
      body: new Blob([await fixture("ollama-chat-error.ndjson")]).stream(),
      form: "lines",
      converter: ollama.stream(),
      identity,
      completed: () => {},
      signal: new AbortController().signal,
      abortUpstream: () => {},
    });
    const events = eventsOf(await new Response(stream).text());
    expect(events).toHaveLength(2);
    expect(events[1]).toEqual({
      error: {
        message: "llama runner process has terminated: exit status 2",
        type: "server_error",
        code: "bad_gateway",
      },
    });
  });

  test("a whole answer, with counts left out where they are zero", () => {
    const line = {
      message: {
        role: "assistant",
        content: "hi",
        thinking: "hm",
        tool_calls: [{ function: { name: "f", arguments: { a: 1 } } }],
      },
      done: true,
      done_reason: "length",
      eval_count: 5,
    };
    expect(ollama.answer(line)).toEqual({
      text: "hi",
      reasoning: "hm",
      refusal: "",
      calls: [{ id: expect.stringMatching(/^call_\w{24}$/), name: "f", arguments: '{"a":1}' }],
      finishReason: "tool_calls",
      usage: { prompt_tokens: 0, completion_tokens: 5, total_tokens: 5 },
      content: null,
    });
    expect(ollama.answer({ message: { content: "hi" }, done_reason: "length" }).finishReason).toBe("length");
  });

  test("a line that is no JSON object is a broken upstream", () => {
    for (const text of ["not json\n", "[1]\n", "null\n"])
      expect(() => replay([new TextEncoder().encode(text)])).toThrow("not a JSON object");
  });
});

describe("embeddings and tags", () => {
  test("embed requests, answers now and before", () => {
    expect(toOllamaEmbed({ input: "a", encoding_format: "base64", dimensions: 3, user: "x" }, "m")).toEqual({
      model: "m",
      input: ["a"],
      dimensions: 3,
    });
    expect(() => toOllamaEmbed({ input: [1, 2] }, "m")).toThrow("`input`");
    expect(fromOllamaEmbed({ embeddings: [[1, 2]], prompt_eval_count: 4 })).toEqual({
      vectors: [[1, 2]],
      promptTokens: 4,
    });
    expect(fromOllamaEmbed({ embedding: [1, 2] })).toEqual({ vectors: [[1, 2]], promptTokens: 0 });
    expect(() => fromOllamaEmbed({})).toThrow("without embeddings");
  });

  test("tags become models with what they can do", () => {
    const tags = {
      models: [
        { name: "a:latest", capabilities: ["completion", "vision"] },
        { model: "b:7b" },
        { name: "e:latest", capabilities: ["embedding"] },
        { name: "" },
        null,
      ],
    };
    expect(modelsOfTags(tags)).toEqual([
      { id: "a:latest", capabilities: ["chat"] },
      { id: "b:7b" },
      { id: "e:latest", capabilities: ["embeddings"] },
    ]);
    expect(modelsOfTags({ models: null })).toEqual([]);
    expect(() => modelsOfTags({ error: "?" })).toThrow("no models");
  });
});
