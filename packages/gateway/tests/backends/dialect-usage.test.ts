import { afterEach, describe, expect, test } from "bun:test";
import { startAnthropic } from "@model-gateway/testing/vendors/anthropic.ts";
import { CLAUDE_MODELS } from "@model-gateway/testing/vendors/anthropic-rules.ts";
import type { Rates } from "@model-gateway/testing/vendors/bill.ts";
import { GEMINI_MODELS, startGemini } from "@model-gateway/testing/vendors/gemini.ts";
import type { FakeVendor } from "@model-gateway/testing/vendors/model.ts";
import { startOpenAI } from "@model-gateway/testing/vendors/openai.ts";
import { GPT_MODELS } from "@model-gateway/testing/vendors/openai-models.ts";
import { chatUsage as ofGemini } from "../../src/backends/dialects/gemini/answer.ts";
import { chatUsage as ofMessages } from "../../src/backends/dialects/messages/answer.ts";
import { chatUsage as ofResponses } from "../../src/backends/dialects/responses/answer.ts";
import type { UsageParts } from "../../src/kernel/usage-parts.ts";
import { costOf, tokenPrice } from "../../src/rooms/billing/token-price.ts";
import { readUsage } from "../../src/rooms/inference/call/usage-tail.ts";

/** What metering makes of a report, in each dialect. */
const chatUsage = (usage: unknown) => readUsage(usage) as UsageParts | null;
const geminiUsage = (usage: unknown) => chatUsage(ofGemini(usage));
const responsesUsage = (usage: unknown) => chatUsage(ofResponses({ usage }));
/** Later events replace what earlier ones said, but for what they leave out. */
const messagesUsage = (...reports: unknown[]) => {
  const told = reports.flatMap((report) => Object.entries(report ?? {}));
  return chatUsage(ofMessages(Object.fromEntries(told.filter(([, value]) => value !== null))));
};

/** Without the parts that were not reported, or are none. */
const given = (parts: UsageParts | null) =>
  Object.fromEntries(Object.entries(parts ?? {}).filter(([, tokens]) => Boolean(tokens)));

describe("chat", () => {
  const counts = { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120 };
  const plain = { promptTokens: 100, completionTokens: 20 };
  const cases: [string, object, object][] = [
    ["nothing but counts", {}, {}],
    // A client that leaves is charged the prompt as it is counted here: parts that did not fit might then fit.
    ["more cached than there was", { prompt_tokens_details: { cached_tokens: 101 } }, {}],
    ["more thoughts than words", { completion_tokens_details: { reasoning_tokens: 21 } }, {}],
    [
      "OpenAI",
      {
        prompt_tokens_details: { cached_tokens: 64, cache_write_tokens: 30, audio_tokens: 4 },
        completion_tokens_details: { reasoning_tokens: 8, audio_tokens: 2 },
      },
      {
        ...{ cachedTokens: 64, cacheWrite5mTokens: 30, audioInputTokens: 4 },
        ...{ reasoningTokens: 8, audioOutputTokens: 2 },
      },
    ],
    ["DeepSeek", { prompt_cache_hit_tokens: 64, prompt_cache_miss_tokens: 36 }, { cachedTokens: 64 }],
    ["Moonshot", { cached_tokens: 64 }, { cachedTokens: 64 }],
    ["Mistral", { num_cached_tokens: 64 }, { cachedTokens: 64 }],
    [
      "DashScope",
      { prompt_tokens_details: { cached_tokens: 0, cache_creation_input_tokens: 64 } },
      { cacheWrite5mTokens: 64 },
    ],
    [
      "xAI, which counts reasoning apart",
      { completion_tokens_details: { reasoning_tokens: 30 }, total_tokens: 150 },
      { completionTokens: 50, reasoningTokens: 30 },
    ],
    ["figures that are none", { prompt_tokens_details: { cached_tokens: -1 }, cached_tokens: "7" }, {}],
  ];
  for (const [what, reported, parts] of cases)
    test(what, () => expect(given(chatUsage({ ...counts, ...reported }))).toEqual({ ...plain, ...parts }));
  test("without counts: nothing", () => {
    for (const usage of [null, undefined, "x", {}]) expect(chatUsage(usage)).toBeNull();
  });
});

test("messages: the counts of the input are added, and the split of what is written stays known", () => {
  const start = {
    ...{ input_tokens: 10, cache_creation_input_tokens: 50, cache_read_input_tokens: 900, output_tokens: 1 },
    cache_creation: { ephemeral_5m_input_tokens: 20, ephemeral_1h_input_tokens: 30 },
  };
  const parts = {
    ...{ promptTokens: 960, cachedTokens: 900, cacheWrite5mTokens: 20, cacheWrite1hTokens: 30 },
    completionTokens: 1,
  };
  expect(given(messagesUsage(start))).toEqual(parts);
  const end = { output_tokens: 70, input_tokens: null, output_tokens_details: { thinking_tokens: 60 } };
  expect(given(messagesUsage(start, end))).toEqual({ ...parts, completionTokens: 70, reasoningTokens: 60 });
  // What a compaction took is not in the figures beside it, and is billed.
  const compaction = { type: "compaction", input_tokens: 7, cache_read_input_tokens: 100, output_tokens: 30 };
  const iterations = [{ type: "message", input_tokens: 10, output_tokens: 1 }, compaction];
  const all = { ...parts, promptTokens: 1067, cachedTokens: 1000, completionTokens: 31 };
  expect(given(messagesUsage(start, { iterations }))).toEqual(all);
  expect(given(messagesUsage({ input_tokens: 5, output_tokens: 6 }))).toEqual({
    promptTokens: 5,
    completionTokens: 6,
  });
});

test("gemini: thoughts and tool prompts are added, modalities told apart", () => {
  const usage = {
    ...{
      promptTokenCount: 100,
      cachedContentTokenCount: 60,
      candidatesTokenCount: 20,
      thoughtsTokenCount: 30,
    },
    ...{ toolUsePromptTokenCount: 5, totalTokenCount: 155 },
    promptTokensDetails: [
      { modality: "TEXT", tokenCount: 70 },
      { modality: "AUDIO", tokenCount: 30 },
    ],
    candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 12 }],
  };
  expect(given(geminiUsage(usage))).toEqual({
    ...{ promptTokens: 105, completionTokens: 50, cachedTokens: 60, audioInputTokens: 30 },
    ...{ reasoningTokens: 30, imageOutputTokens: 12 },
  });
});

test("responses", () => {
  const usage = {
    ...{ input_tokens: 100, output_tokens: 20, total_tokens: 120 },
    input_tokens_details: { cached_tokens: 64, cache_write_tokens: 30 },
    output_tokens_details: { reasoning_tokens: 8 },
  };
  expect(given(responsesUsage(usage))).toEqual({
    ...{
      promptTokens: 100,
      completionTokens: 20,
      cachedTokens: 64,
      cacheWrite5mTokens: 30,
      reasoningTokens: 8,
    },
  });
});

describe("the bill equals the vendor's to the nanodollar", () => {
  let fake: FakeVendor;
  afterEach(() => fake.stop());
  const costAt = (rates: Rates, usage: UsageParts | null) => {
    const named = ({ cached, write5m, write1h, above: _, ...rest }: Rates) => ({
      ...{ ...rest, cached_input: cached, cache_write: write5m, cache_write_1h: write1h },
    });
    const { above } = rates;
    const long = above ? [{ above_tokens: above.promptTokens, ...named(above.rates) }] : [];
    return costOf(tokenPrice({ match: "", ...named(rates), long_prompts: long })!, usage!);
  };
  const post = async (path: string, body: object, headers: Record<string, string>) => {
    const answer = await fetch(`${fake.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    expect(answer.status).toBe(200);
    return answer;
  };
  /** The last event of a stream whose data has this member. */
  const events = (text: string) =>
    text.split(/\r?\n/).flatMap((line) => (line.startsWith("data: {") ? [JSON.parse(line.slice(6))] : []));
  const LONG = "Every word counts. ".repeat(2_000);

  test("Anthropic's", async () => {
    fake = startAnthropic();
    const headers = { "x-api-key": fake.apiKey, "anthropic-version": "2023-06-01" };
    const system = [{ type: "text", text: LONG, cache_control: { type: "ephemeral", ttl: "1h" } }];
    for (const model of Object.keys(CLAUDE_MODELS))
      for (const stream of [false, true, false]) {
        const messages = [{ role: "user", content: `${LONG}${stream}` }];
        const cache_control = { type: "ephemeral" };
        const body = { model, max_tokens: 500, system, messages, cache_control, stream };
        const answer = await post("/v1/messages", body, headers);
        const told = stream ? events(await answer.text()) : [await answer.json()];
        const usage = messagesUsage(...told.map(({ message, usage }) => usage ?? message?.usage));
        expect(costAt(CLAUDE_MODELS[model]!.rates, usage)).toBe(fake.bill.lines.at(-1)!.nanoUsd);
      }
    expect(fake.bill.lines.at(-1)!.cached).toBeGreaterThan(10_000);
  });

  test("OpenAI's", async () => {
    fake = startOpenAI();
    const headers = { authorization: `Bearer ${fake.apiKey}` };
    for (const [model, { rates, isChat }] of Object.entries(GPT_MODELS))
      for (const stream of [false, true]) {
        const response = await post("/v1/responses", { model, input: LONG, stream }, headers);
        const told = stream ? events(await response.text()).at(-1).response : await response.json();
        expect(costAt(rates, responsesUsage(told.usage))).toBe(fake.bill.lines.at(-1)!.nanoUsd);
        if (!isChat) continue;
        const messages = [{ role: "user", content: LONG }];
        const stream_options = stream ? { include_usage: true } : undefined;
        const chat = await post("/v1/chat/completions", { model, messages, stream, stream_options }, headers);
        const { usage } = stream ? events(await chat.text()).at(-1) : await chat.json();
        expect(costAt(rates, chatUsage(usage))).toBe(fake.bill.lines.at(-1)!.nanoUsd);
      }
    expect(fake.bill.lines.at(-1)!.cached).toBeGreaterThan(1_000);
  });

  test("Gemini's, also of a prompt beyond its first rate", async () => {
    fake = startGemini();
    const headers = { "x-goog-api-key": fake.apiKey };
    for (const [model, { rates }] of Object.entries(GEMINI_MODELS))
      for (const text of [LONG, LONG, LONG.repeat(30)]) {
        const body = { contents: [{ role: "user", parts: [{ text }] }] };
        const answer = await post(`/v1beta/models/${model}:streamGenerateContent?alt=sse`, body, headers);
        const last = events(await answer.text()).at(-1);
        expect(costAt(rates, geminiUsage(last.usageMetadata))).toBe(fake.bill.lines.at(-1)!.nanoUsd);
      }
    expect(fake.bill.lines.at(-1)!.fresh).toBeGreaterThan(200_000);
  });
});
