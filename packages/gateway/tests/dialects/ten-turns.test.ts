import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startAnthropic } from "@model-gateway/testing/vendors/anthropic.ts";
import { startGemini } from "@model-gateway/testing/vendors/gemini.ts";
import type { FakeVendor } from "@model-gateway/testing/vendors/model.ts";
import { startOpenAI } from "@model-gateway/testing/vendors/openai.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { type Agent, aiAgents, chatAgent, geminiAgent, messagesAgent, responsesAgent } from "./agents.ts";
import { startRecorder, toldBy } from "./exchanges.ts";

/**
 * Each kind of client against each vendor: ten turns with tools, thinking and an image, which the vendor would refuse at
 * the second were anything lost. A stream tells its client the same, event by event, as the client's own vendor does.
 * Prices are the built-in ones; each vendor writes its own bill.
 */
const AGENTS: Record<string, Agent> = {
  chat: chatAgent,
  responses: responsesAgent,
  messages: messagesAgent,
  gemini: geminiAgent,
  ...aiAgents,
};
/** The vendor whose API a client speaks. Chats are DeepSeek's here: OpenAI's models take them as responses. */
const OWN_VENDORS = [
  { speaks: /chat/, model: "deepseek-v4-pro", start: startOpenAI },
  { speaks: /responses/, model: "gpt-5.6-sol", start: startOpenAI },
  { speaks: /messages/, model: "claude-opus-5-5", start: startAnthropic },
  { speaks: /gemini/, model: "gemini-3.8-flash", start: startGemini },
];
const VENDORS: { dialects: string[]; model: string; start: () => FakeVendor; prefix?: string }[] = [
  { dialects: ["messages"], model: "claude-opus-5-5", start: startAnthropic },
  { dialects: ["chat", "responses"], model: "gpt-6.1-sol", start: startOpenAI },
  { dialects: ["responses"], model: "gpt-5.6-sol", start: startOpenAI },
  { dialects: ["chat"], model: "deepseek-v4-pro", start: startOpenAI },
  { dialects: ["gemini"], model: "gemini-3.8-flash", start: startGemini },
];

type Recorder = ReturnType<typeof startRecorder>;

/** What a streamed session tells, but for thoughts: not all vendors show them to those who do not ask. */
const toldIn = ({ exchanges }: Recorder) =>
  exchanges
    .splice(0)
    .map(({ answer }) =>
      toldBy(answer).filter((told) => !/reasoning|thought|thinking|signature|_stop/.test(told.join(" "))),
    );

/** What each client is told by its own vendor, without the gateway. */
const known = new Map<string, Promise<ReturnType<typeof toldIn>>>();
async function toldAlone(name: string) {
  const { model, start } = OWN_VENDORS.find(({ speaks }) => speaks.test(name))!;
  const vendor = start();
  const recorder = startRecorder(vendor.url);
  // The chat API of the fakes is where the gateway's own is.
  await AGENTS[name]!({ url: recorder.url, key: vendor.apiKey, model, isStream: true });
  recorder.stop();
  vendor.stop();
  return toldIn(recorder);
}
const ownEvents = (name: string) => {
  const told = known.get(name) ?? toldAlone(name);
  known.set(name, told);
  return told;
};

let bench: InferenceBench;
let recorder: Recorder;
const fakes: FakeVendor[] = [];
beforeAll(async () => {
  bench = await bootInference();
  recorder = startRecorder(bench.url);
  for (const { dialects, model, start } of VENDORS) {
    const fake = start();
    // Each model has one backend.
    fake.upstream.listing((_, reply) => reply.json({}, 404));
    fakes.push(fake);
    await bench.addBackend({
      type: "external",
      url: fake.url,
      api_key: fake.apiKey,
      name: dialects.join("-"),
      models: [model],
      dialects,
    });
  }
});
afterAll(async () => {
  recorder.stop();
  for (const fake of fakes) fake.stop();
  await bench.stop();
});

/** What the books say that all requests for a model have cost. */
async function bookedNanoUsd(model: string): Promise<number> {
  const rows = { since: "2026-01-01", until: "2099-12-31", model, by: "backend" };
  const { totals } = await bench.rpc("usage.series", rows, bench.token);
  return Math.round(totals.cost_usd * 1e9);
}

/** What the vendors' bills say; two of them sell the same models. */
const billedNanoUsd = (model: string): number =>
  fakes
    .flatMap(({ bill }) => bill.lines)
    .reduce((sum, line) => sum + (line.model === model ? line.nanoUsd : 0), 0);

describe.each(VENDORS)("$model by $dialects", ({ model, dialects, start }) => {
  for (const [name, agent] of Object.entries(AGENTS))
    for (const isStream of [true, false])
      test(`a client of ${name}, ${isStream ? "streamed" : "whole"}`, async () => {
        recorder.exchanges.length = 0;
        const told = await agent({ url: recorder.url, key: bench.key, model, isStream });
        if (isStream) expect(toldIn(recorder)).toEqual(await ownEvents(name));
        expect(await bookedNanoUsd(model)).toBe(billedNanoUsd(model));
        expect(told).toMatchObject({ turns: 10, text: "Done after 10 turns." });
        expect(told.usage.completion).toBeGreaterThan(0);
        // What was sent in one turn was sent the same in the next.
        expect(told.usage.cached / told.usage.prompt).toBeGreaterThan(0.9);
        // Its own vendor refuses such a chat: this one goes as a response.
        if (dialects.includes(name) && name !== "chat") {
          const vendor = start();
          const alone = await agent({ url: vendor.url, key: vendor.apiKey, model, isStream });
          vendor.stop();
          expect(told.usage).toEqual(alone.usage);
        }
        // OpenAI shows its thoughts to those who ask for a summary.
        const isAsked = /messages|gemini|AI SDK, responses/.test(name);
        if (isAsked || !dialects.includes("responses")) expect(told.thoughts).not.toBe("");
      });
});
