/**
 * The real coding agents × the dialects of backends: a session of ten turns with tools and thinking, an abort, and a
 * prompt that is too long. With RECORD set, the sessions become the fixtures of ../recorded.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { Refusal } from "@model-gateway/testing/vendors/model.ts";
import { startRecorder } from "../../dialects/exchanges.ts";
import { DIALECTS, type DialectName, modelOf, startVendors, type Vendors } from "../../dialects/vendors.ts";
import { bootInference, type InferenceBench } from "../../support/inference.ts";
import { record } from "../recorded/sessions.ts";
import { IMAGE_DATA } from "./client.ts";
import { programScript } from "./program-script.ts";
import { hasPrograms, PROGRAM_TIMEOUT_MS, programClients } from "./programs.ts";

const PROMPT = "What is the weather in Oslo?";
/** How each vendor says that a prompt is too long. */
const OVERFLOWS: Record<DialectName, object> = {
  messages: {
    type: "error",
    error: { type: "invalid_request_error", message: "prompt is too long: 208310 tokens > 200000 maximum" },
  },
  responses: overflow(
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
  ),
  gemini: {
    error: {
      ...{ code: 400, status: "INVALID_ARGUMENT" },
      message: "The input token count (208310) exceeds the maximum number of tokens allowed (200000).",
    },
  },
  chat: overflow(
    "This model's maximum context length is 200000 tokens. However, your messages resulted in 208310 tokens.",
  ),
};
function overflow(message: string) {
  return {
    error: { message, type: "invalid_request_error", param: "messages", code: "context_length_exceeded" },
  };
}
describe.if(hasPrograms)("coding agents, where npm run clients -- install has put them", () => {
  let bench: InferenceBench;
  let vendors: Vendors;
  beforeAll(async () => {
    bench = await bootInference({ config: { upstreamErrors: "pass" } });
    vendors = await startVendors(bench);
  });
  afterAll(async () => {
    vendors.stop();
    await bench.stop();
  });
  const door = (dialect: DialectName) => ({ url: bench.url, key: bench.key, model: modelOf(dialect) });

  for (const client of programClients)
    for (const dialect of DIALECTS) {
      test(
        `${client.name}, ${dialect}: ten turns with tools, thinking and an image`,
        async () => {
          const vendor = vendors[dialect];
          vendor.script = programScript;
          const before = vendor.requests.length;
          const recorder = startRecorder(bench.url);
          const through = { ...door(dialect), url: recorder.url };
          const told = await client.ask(through, { prompt: PROMPT, stream: true, image: true });
          recorder.stop();
          expect(told).toContain("Done after 10 turns.");
          const sent = vendor.requests.slice(before);
          expect(sent).toHaveLength(10);
          for (const { text } of sent) expect(text).toContain(IMAGE_DATA);
          if (process.env.RECORD) record(client.id, dialect, recorder.exchanges);
        },
        PROGRAM_TIMEOUT_MS,
      );
      test(
        `${client.name}, ${dialect}: abort`,
        async () => {
          const vendor = vendors[dialect];
          vendor.script = () => ({ thinking: "So far?", text: "on and on ".repeat(100_000) });
          const before = vendor.requests.length;
          await client.leave(door(dialect), PROMPT, () =>
            until("the answer has begun", () => vendor.requests.length > before, PROGRAM_TIMEOUT_MS / 2),
          );
          await until("the vendor is left", () =>
            vendor.requests.slice(before).every(({ closedAtMs }) => closedAtMs !== null),
          );
        },
        PROGRAM_TIMEOUT_MS,
      );
      test(
        `${client.name}, ${dialect}: overflow`,
        async () => {
          vendors[dialect].script = () => {
            throw new Refusal(400, OVERFLOWS[dialect]);
          };
          const told = await client.ask(door(dialect), { prompt: PROMPT, stream: true }).then(
            (text) => `answered: ${text}`,
            (error: Error) => error.message,
          );
          expect(told).toMatch(/too long|context|token count|exceed/i);
        },
        PROGRAM_TIMEOUT_MS,
      );
    }
});
