import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { MessageSpeaker } from "../../src/rooms/inference/voices/messages/speaker.ts";
import { ResponseSpeaker } from "../../src/rooms/inference/voices/responses/speaker.ts";
import type { Speaker } from "../../src/rooms/inference/voices/voice.ts";
import { eventsOf, fixture, spoken } from "./support.ts";

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

const SPEAKERS: Record<string, () => Speaker> = {
  messages: () => new MessageSpeaker({ id: "msg_1", thoughts: "shown", promptTokens: () => 21 }),
  responses: () =>
    new ResponseSpeaker({
      token: "1",
      createdSeconds: 1,
      request: { model: "m", input: "hi" },
      clientTools: new Map(),
      keep: null,
    }),
};

const types = async (name: string, api: string) =>
  eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS[api]!())).map(({ event }) => event);

for (const api of Object.keys(SPEAKERS)) {
  for (const name of FIXTURES) {
    test(`${api}: ${name} reads the same wherever its bytes are cut`, async () => {
      const bytes = fixture(`${name}.sse`);
      const whole = await spoken([bytes], SPEAKERS[api]!());
      expect(whole.length).toBeGreaterThan(0);
      for (let cut = 1; cut < bytes.length; cut++) {
        const cutInTwo = await spoken([bytes.subarray(0, cut), bytes.subarray(cut)], SPEAKERS[api]!());
        if (cutInTwo !== whole) expect({ cut, text: cutInTwo }).toEqual({ cut, text: whole });
      }
      const single = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));
      expect(await spoken(single, SPEAKERS[api]!())).toBe(whole);
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
    const events = eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS.responses!()));
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
    for (const { event, data } of eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS.messages!()))) {
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

    const last = eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS.responses!())).at(-1)!;
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
    const messages = eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS.messages!()));
    expect(messages.at(-1)!.event).toBe("error");
    expect(messages.some(({ event }) => event === "message_stop")).toBe(false);
    const responses = eventsOf(await spoken([fixture(`${name}.sse`)], SPEAKERS.responses!()));
    expect(responses.slice(-2).map(({ event }) => event)).toEqual(["response.failed", "error"]);
    const error = responses.at(-1)!.data;
    expect(error.error.message).toBe(error.message);
    expect(responses.at(-2)!.data.response.error.message).toBe(error.message);
    expect(responses.at(-2)!.data.response.output[0].content[0].text).toBe("Once upon");
  }
});

test("thoughts that were not asked for are silent, but the line is kept alive", async () => {
  const clock = new ManualClock();
  const events = fixture("vllm-reasoning.sse").toString().split("\n\n");
  const pieces = events.map((event) => Buffer.from(`${event}\n\n`));
  const speaker = new MessageSpeaker({ id: "msg_1", thoughts: null, promptTokens: () => 21 });
  const text = await spoken(pieces, speaker, { clock, pause: () => clock.advance(11_000) });
  expect(text).not.toContain("a number.");
  expect(eventsOf(text).filter(({ event }) => event === "ping").length).toBeGreaterThanOrEqual(3);
  expect(eventsOf(text).filter(({ event }) => event === "content_block_start")).toHaveLength(1);
});
