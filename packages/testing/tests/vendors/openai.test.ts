import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { until } from "../../src/until.ts";
import type { FakeVendor } from "../../src/vendors/model.ts";
import { startOpenAI } from "../../src/vendors/openai.ts";

type Chat = OpenAI.ChatCompletionMessageParam[];
type Items = OpenAI.Responses.ResponseInputItem[];

const LONG = "Look at every detail. ".repeat(400);
const CHAT_TOOL: OpenAI.ChatCompletionTool = {
  type: "function",
  function: { name: "look", description: LONG, parameters: { type: "object", properties: {} } },
};
const TOOL: OpenAI.Responses.FunctionTool = {
  type: "function",
  name: "look",
  description: LONG,
  parameters: { type: "object", properties: {} },
  strict: false,
};

let now = 1_000_000;
let fake: FakeVendor;
let client: OpenAI;
const connected = (apiKey = fake.apiKey) => new OpenAI({ baseURL: `${fake.url}/v1`, apiKey, maxRetries: 0 });
beforeEach(() => {
  fake = startOpenAI({ nowMs: () => now });
  client = connected();
});
afterEach(() => fake.stop());

const refusal = async (sent: PromiseLike<unknown>): Promise<string> => {
  const error = await Promise.resolve(sent).then(
    () => null,
    (error) => error,
  );
  expect(error).toBeInstanceOf(OpenAI.APIError);
  return `${error.status} ${error.param} ${error.code}: ${error.message}`;
};

async function chatAgent(isStream: boolean) {
  const messages: Chat = [{ role: "user", content: "Go." }];
  const answers: OpenAI.ChatCompletion[] = [];
  for (;;) {
    const params = {
      model: "gpt-5.6-sol",
      reasoning_effort: "none" as const,
      messages,
      tools: [CHAT_TOOL],
      prompt_cache_key: "session",
    };
    const answer = isStream
      ? await client.chat.completions
          .stream({ ...params, stream_options: { include_usage: true } })
          .finalChatCompletion()
      : await client.chat.completions.create(params);
    answers.push(answer);
    const message = answer.choices[0]?.message as OpenAI.ChatCompletionMessage;
    if (!message.tool_calls?.length) return answers;
    messages.push(
      message,
      ...message.tool_calls.map(({ id }) => ({ role: "tool" as const, tool_call_id: id, content: "seen" })),
    );
  }
}

async function responsesAgent(isStream: boolean, isStored: boolean) {
  let items: Items = [{ role: "user", content: "Go." }];
  let previous: string | undefined;
  const answers: OpenAI.Responses.Response[] = [];
  for (;;) {
    const params = {
      model: "gpt-6.1-sol",
      reasoning: { effort: "high" as const, summary: "auto" as const },
      tools: [TOOL],
      input: items,
      store: isStored,
      previous_response_id: previous,
      prompt_cache_key: "session",
    };
    const answer = isStream
      ? await client.responses.stream(params).finalResponse()
      : await client.responses.create(params);
    answers.push(answer as OpenAI.Responses.Response);
    const outputs = answer.output.flatMap((item) =>
      item.type === "function_call"
        ? [{ type: "function_call_output" as const, call_id: item.call_id, output: "seen" }]
        : [],
    );
    if (outputs.length === 0) return answers;
    if (isStored) previous = answer.id;
    // The SDK's stream helper adds parsed_arguments, which is not a field of the API.
    const said = answer.output.map((item) => {
      const { parsed_arguments, ...rest } = item as never as Record<string, unknown>;
      return rest;
    });
    items = isStored ? outputs : [...items, ...(said as never as Items), ...outputs];
  }
}

/** Dollars a million: fresh 2, cached 0.1, written 2.5, output 10. */
const billOf = (answers: readonly OpenAI.Responses.Response[]) =>
  answers.reduce((sum, { usage }) => {
    const {
      input_tokens,
      output_tokens,
      input_tokens_details: details,
    } = usage as OpenAI.Responses.ResponseUsage;
    const { cached_tokens, cache_write_tokens } = details;
    const fresh = input_tokens - cached_tokens - cache_write_tokens;
    return (
      sum +
      Math.round((fresh * 2 + cached_tokens * 0.1 + cache_write_tokens * 2.5 + output_tokens * 10) * 1_000)
    );
  }, 0);

describe("conversations", () => {
  for (const isStream of [true, false]) {
    const how = isStream ? "streamed" : "whole";
    test(`chat: ten turns with tools, ${how}`, async () => {
      const answers = await chatAgent(isStream);
      expect(answers.length).toBe(10);
      expect(answers[3]?.choices[0]?.message.tool_calls?.[0]).toMatchObject({
        function: { name: "look", arguments: '{"step":4}' },
      });
      const usage = answers.at(-1)?.usage;
      expect(usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(2_000);
      expect(fake.bill.lines.length).toBe(10);
      expect(fake.bill.lines.at(-1)?.cached).toBe(usage?.prompt_tokens_details?.cached_tokens as number);
    });

    for (const isStored of [true, false])
      test(`responses: ten turns with tools and reasoning, ${how}, ${isStored ? "stored" : "stateless"}`, async () => {
        const answers = await responsesAgent(isStream, isStored);
        expect(answers.length).toBe(10);
        expect(answers[3]?.output.map(({ type }) => type)).toEqual(["reasoning", "message", "function_call"]);
        expect(answers.at(-1)?.status).toBe("completed");
        const usage = answers.at(-1)?.usage as OpenAI.Responses.ResponseUsage;
        expect(usage.input_tokens_details.cached_tokens / usage.input_tokens).toBeGreaterThan(0.9);
        expect(fake.bill.nanoUsd).toBe(billOf(answers));
      });
  }

  test("aborts end the bill", async () => {
    fake.stop();
    fake = startOpenAI({ paceMs: 5, script: () => ({ text: "word ".repeat(400) }) });
    client = connected();
    for await (const event of await client.responses.create({ model: "gpt-5.4", input: "Hi", stream: true }))
      if (event.type === "response.output_text.delta") break;
    const chat = { model: "gpt-5.4", messages: [{ role: "user" as const, content: "Hi" }] };
    for await (const chunk of await client.chat.completions.create({ ...chat, stream: true }))
      if (chunk.choices[0]?.delta.content) break;
    await until("both are billed", () => fake.bill.lines.length === 2);
    for (const { output } of fake.bill.lines) expect(output).toBeLessThan(100);
  });

  test("output limits cut an answer", async () => {
    const cut = await client.responses.create({ model: "gpt-6.1-sol", input: "Hi", max_output_tokens: 4 });
    expect([cut.status, cut.incomplete_details?.reason]).toEqual(["incomplete", "max_output_tokens"]);
    const chat = await client.chat.completions.create({
      model: "gpt-5.4",
      messages: [{ role: "user", content: "Hi" }],
      max_completion_tokens: 2,
    });
    expect(chat.choices[0]?.finish_reason).toBe("length");
  });

  test("stored responses are read and deleted", async () => {
    const { id, output } = await client.responses.create({ model: "gpt-6.1-sol", input: "Hi" });
    expect((await client.responses.retrieve(id)).output).toEqual(output);
    await client.responses.delete(id);
    expect(await refusal(client.responses.retrieve(id))).toContain("404");
  });
});

describe("cache", () => {
  const cached = async (content: string, key?: string) => {
    const { usage } = await client.chat.completions.create({
      model: "gpt-5.4",
      messages: [{ role: "user", content }],
      ...(key && { prompt_cache_key: key }),
    });
    return usage?.prompt_tokens_details?.cached_tokens;
  };

  test("reads whole steps from 1,024 tokens on, for half an hour, by prompt_cache_key", async () => {
    expect(await cached("x".repeat(3_900))).toBe(0);
    expect(await cached("x".repeat(3_900))).toBe(0);
    expect(await cached(LONG)).toBe(0);
    const read = (await cached(`${LONG}and more`)) as number;
    expect(read).toBeGreaterThanOrEqual(1_024);
    expect((read - 1_024) % 128).toBe(0);
    expect(await cached(LONG, "another")).toBe(0);
    expect(await cached(`!${LONG}`)).toBe(0);
    now += 31 * 60_000;
    expect(await cached(LONG)).toBe(0);
  });
});

describe("refusals", () => {
  const messages: Chat = [{ role: "user", content: "Hello" }];
  const chat = (rest: object) =>
    refusal(client.chat.completions.create({ model: "gpt-5.6-sol", messages, ...rest } as never));
  const respond = (rest: object) =>
    refusal(client.responses.create({ model: "gpt-6.1-sol", input: "Hello", ...rest } as never));

  test("a wrong key, an unknown model, an unknown field", async () => {
    expect(await refusal(connected("sk-other").models.list())).toContain("401 null invalid_api_key");
    expect(await chat({ model: "gpt-none" })).toContain("404 null model_not_found");
    expect(await chat({ cache_control: {} })).toContain("400 cache_control unknown_parameter");
    expect(await respond({ max_tokens: 5 })).toContain("400 max_tokens unknown_parameter");
  });

  test("tools with an effort on chat, by generation", async () => {
    const tools = [CHAT_TOOL];
    const passes = async (rest: object) =>
      (await client.chat.completions.create({ messages, tools, ...rest } as never)).object;
    expect(await chat({ model: "gpt-5.4", tools, reasoning_effort: "high" })).toContain(
      "400 reasoning_effort",
    );
    expect(await passes({ model: "gpt-5.4" })).toBe("chat.completion");
    expect(await chat({ tools })).toContain("400 reasoning_effort");
    expect(await chat({ tools, reasoning_effort: "low" })).toContain("Please use /v1/responses");
    expect(await passes({ model: "gpt-5.6-sol", reasoning_effort: "none" })).toBe("chat.completion");
    expect(await chat({ model: "gpt-6.1-sol", tools })).toContain("400 reasoning_effort");
    expect(await chat({ model: "gpt-6.1-sol", tools, reasoning_effort: "none" })).toContain(
      "unsupported_value",
    );
    expect(await passes({ model: "gpt-4.1" })).toBe("chat.completion");
    expect(await chat({ model: "gpt-5.5-pro" })).toContain("only supported in v1/responses");
  });

  test("max_tokens, sampling, minimal effort, stream_options without a stream", async () => {
    expect(await chat({ max_tokens: 5 })).toContain("400 max_tokens unsupported_parameter");
    expect(await chat({ temperature: 0.5 })).toContain("400 temperature unsupported_parameter");
    expect(await chat({ reasoning_effort: "minimal" })).toContain("unsupported_value");
    expect(await chat({ stream_options: { include_usage: true } })).toContain("400 stream_options");
    expect(await respond({ temperature: 0.5 })).toContain("400 temperature unsupported_parameter");
  });

  test("calls without answers and answers without calls", async () => {
    const call = {
      role: "assistant",
      tool_calls: [{ id: "c1", type: "function", function: { name: "look", arguments: "{}" } }],
    };
    const answer = { role: "tool", tool_call_id: "c1", content: "seen" };
    expect(await chat({ messages: [...messages, call] })).toContain("must be followed by tool messages");
    expect(await chat({ messages: [...messages, answer] })).toContain("preceeding message");
    const output = { type: "function_call_output", call_id: "c1", output: "seen" };
    expect(await respond({ input: [output] })).toContain("No tool call found");
    const made = { type: "function_call", call_id: "c1", name: "look", arguments: "{}" };
    expect(await respond({ input: [made] })).toContain("No tool output found");
  });

  test("reasoning that is not theirs, that is missing, that was not kept", async () => {
    const input: Items = [{ role: "user", content: "Go." }];
    const { output } = await client.responses.create({
      model: "gpt-6.1-sol",
      input,
      tools: [TOOL],
      store: false,
    });
    const [reasoning, said, call] = output as [
      OpenAI.Responses.ResponseReasoningItem,
      never,
      OpenAI.Responses.ResponseFunctionToolCall,
    ];
    const result = { type: "function_call_output", call_id: call.call_id, output: "seen" };
    expect(
      await respond({ input: [...input, { ...reasoning, encrypted_content: "gAAAA" }, said, call, result] }),
    ).toContain("invalid_encrypted_content");
    expect(await respond({ input: [...input, said, call, result] })).toContain(
      "without its required 'reasoning' item",
    );
    const { encrypted_content, ...bare } = reasoning;
    expect(await respond({ input: [...input, bare, said, call, result] })).toContain(
      "Items are not persisted",
    );
    expect(await respond({ previous_response_id: "resp_none" })).toContain("previous_response_not_found");
  });
});
