import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { estimatedCounts } from "../../src/rooms/compat/chat-answer.ts";
import { MessageWriter } from "../../src/rooms/compat/messages/stream.ts";
import { ResponseWriter } from "../../src/rooms/compat/responses/stream.ts";
import { convertStream, type StreamWriter } from "../../src/rooms/compat/stream.ts";
import { eventsOf, fixture } from "./support.ts";

const FIXTURES = [
  "openai-text",
  "openai-tools",
  "openai-refusal",
  "interleaved-tools",
  "shared-index-tools",
  "vllm-reasoning",
  "llamacpp-length",
  "error-midstream",
  "cut-off",
];

const WRITERS: Record<string, () => StreamWriter> = {
  messages: () => new MessageWriter({ id: "msg_1", thinking: true }),
  responses: () =>
    new ResponseWriter({
      token: "1",
      createdSeconds: 1,
      request: { model: "m", input: "hi" },
      clientTools: new Map(),
    }),
};

const estimate = (answerBytes: number) => estimatedCounts(10, answerBytes);

function convert(chunks: readonly Uint8Array[], writer: StreamWriter): Promise<string> {
  let next = 0;
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = chunks[next++];
      if (chunk) controller.enqueue(chunk);
      else controller.close();
    },
  });
  return new Response(convertStream({ source, writer, clock: new ManualClock(), estimate })).text();
}

const types = async (name: string, api: string) =>
  eventsOf(await convert([fixture(`${name}.sse`)], WRITERS[api]!())).map(({ event }) => event);

for (const api of Object.keys(WRITERS)) {
  for (const name of FIXTURES) {
    test(`${api}: ${name} reads the same wherever its bytes are cut`, async () => {
      const bytes = fixture(`${name}.sse`);
      const whole = await convert([bytes], WRITERS[api]!());
      expect(whole.length).toBeGreaterThan(0);
      for (let cut = 1; cut < bytes.length; cut++) {
        const cutInTwo = await convert([bytes.subarray(0, cut), bytes.subarray(cut)], WRITERS[api]!());
        if (cutInTwo !== whole) expect({ cut, text: cutInTwo }).toEqual({ cut, text: whole });
      }
      const single = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));
      expect(await convert(single, WRITERS[api]!())).toBe(whole);
    });
  }
}

test("messages: text and calls come as blocks, one after the other", async () => {
  expect(await types("openai-tools", "messages")).toEqual([
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
});

test("responses: text and calls come as items, each opened and closed", async () => {
  expect(await types("openai-tools", "responses")).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
  ]);
});

test("responses: the numbers of the events have no gap", async () => {
  for (const name of FIXTURES) {
    const events = eventsOf(await convert([fixture(`${name}.sse`)], WRITERS.responses!()));
    expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, i) => i));
    expect(events.every(({ event, data }) => event === data.type)).toBe(true);
  }
});

for (const [name, calls] of [
  [
    "interleaved-tools",
    [
      ["call_a", { x: 1 }],
      ["call_b", { y: 2 }],
    ],
  ],
  [
    "shared-index-tools",
    [
      ["call_a", { x: 1 }],
      ["call_b", { y: 2 }],
    ],
  ],
] as const) {
  test(`${name}: every call keeps its own arguments`, async () => {
    const blocks = new Map<number, { id: string; json: string }>();
    let open: number | null = null;
    for (const { event, data } of eventsOf(await convert([fixture(`${name}.sse`)], WRITERS.messages!()))) {
      if (event === "content_block_start") {
        expect(open).toBeNull();
        open = data.index;
        blocks.set(data.index, { id: data.content_block.id, json: "" });
      }
      if (event === "content_block_delta") {
        expect(data.index).toBe(open);
        blocks.get(data.index)!.json += data.delta.partial_json;
      }
      if (event === "content_block_stop") open = null;
    }
    expect([...blocks.values()].map(({ id, json }) => [id, JSON.parse(json)])).toEqual(calls as never);

    const last = eventsOf(await convert([fixture(`${name}.sse`)], WRITERS.responses!())).at(-1)!;
    expect(
      last.data.response.output.map((item: Record<string, string>) => [
        item.call_id,
        JSON.parse(item.arguments!),
      ]),
    ).toEqual(calls as never);
  });
}

test("a stream that breaks or ends early never looks whole", async () => {
  for (const name of ["error-midstream", "cut-off"]) {
    const messages = eventsOf(await convert([fixture(`${name}.sse`)], WRITERS.messages!()));
    expect(messages.at(-1)!.event).toBe("error");
    expect(messages.some(({ event }) => event === "message_stop")).toBe(false);
    const responses = eventsOf(await convert([fixture(`${name}.sse`)], WRITERS.responses!()));
    expect(responses.slice(-2).map(({ event }) => event)).toEqual(["response.failed", "error"]);
    const error = responses.at(-1)!.data;
    expect(error.error.message).toBe(error.message);
    expect(responses.at(-2)!.data.response.error.message).toBe(error.message);
    expect(responses.at(-2)!.data.response.output[0].content[0].text).toBe("Once upon");
  }
});

test("a source that throws becomes an error event", async () => {
  const source = new ReadableStream<Uint8Array>({
    pull: () => Promise.reject(new Error("socket closed at 10.0.0.7")),
  });
  const text = await new Response(
    convertStream({ source, writer: WRITERS.messages!(), clock: new ManualClock(), estimate }),
  ).text();
  expect(eventsOf(text).map(({ event }) => event)).toEqual(["error"]);
  expect(text).not.toContain("10.0.0.7");
});

test("thoughts that were not asked for are silent, but the line is kept alive", async () => {
  const clock = new ManualClock();
  const chunks = fixture("vllm-reasoning.sse").toString().split("\n\n");
  const source = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const chunk = chunks.shift();
      if (chunk === undefined) return controller.close();
      await clock.advance(11_000);
      controller.enqueue(new TextEncoder().encode(`${chunk}\n\n`));
    },
  });
  const writer = new MessageWriter({ id: "msg_1", thinking: false });
  const text = await new Response(convertStream({ source, writer, clock, estimate })).text();
  expect(text).not.toContain("a number.");
  expect(eventsOf(text).filter(({ event }) => event === "ping").length).toBeGreaterThanOrEqual(3);
  expect(eventsOf(text).filter(({ event }) => event === "content_block_start")).toHaveLength(1);
});

test("an answer without usage is told with estimated counts", async () => {
  const events = eventsOf(await convert([fixture("shared-index-tools.sse")], WRITERS.messages!()));
  const { usage } = events.find(({ event }) => event === "message_delta")!.data;
  expect(usage.input_tokens).toBe(10);
  expect(usage.output_tokens).toBeGreaterThan(10);
  const last = eventsOf(await convert([fixture("shared-index-tools.sse")], WRITERS.responses!())).at(-1)!;
  expect(last.data.response.usage.output_tokens).toBe(usage.output_tokens);
});
