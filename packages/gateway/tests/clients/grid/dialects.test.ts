/**
 * The real coding agents × the dialects of backends: a session of ten turns with tools and thinking, an abort, and a
 * prompt that is too long. With RECORD set, their first requests become the fixtures of ../recorded.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { Refusal } from "@model-gateway/testing/vendors/model.ts";
import { DIALECTS, type DialectName, modelOf, startVendors, type Vendors } from "../../dialects/vendors.ts";
import { bootInference, type InferenceBench } from "../../support/inference.ts";
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
const NATIVE: Record<string, DialectName> = {
  "claude-code": "messages",
  codex: "responses",
  "gemini-cli": "gemini",
  opencode: "chat",
};
const TEXT_CHARS_MAX = 160;

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
        `${client.name}, ${dialect}: ten turns with tools and thinking`,
        async () => {
          const vendor = vendors[dialect];
          vendor.script = programScript;
          const before = vendor.requests.length;
          expect(await client.ask(door(dialect), { prompt: PROMPT, stream: true })).toContain(
            "Done after 10 turns.",
          );
          expect(vendor.requests.length - before).toBe(10);
          if (process.env.RECORD && NATIVE[client.id] === dialect)
            record(client.id, vendor.requests[before]!);
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

/** What belongs to the vendors' prompts, and to one run, is cut. */
function record(
  id: string,
  { path, headers, json }: { path: string; headers: Record<string, string>; json: object },
) {
  const body = JSON.parse(JSON.stringify(json), (_, value) =>
    typeof value === "string" && value.length > TEXT_CHARS_MAX
      ? `${value.slice(0, TEXT_CHARS_MAX / 2)} …`
      : value,
  );
  const own =
    /^(anthropic-|x-claude|x-app|x-stainless|x-codex|x-client|session-id|thread-id|originator|user-agent|x-goog-api-client)/;
  const kept = Object.fromEntries(Object.entries(headers).filter(([name]) => own.test(name)));
  const file = join(import.meta.dir, "../recorded/fixtures", `${id}.json`);
  writeFileSync(file, `${JSON.stringify({ path, headers: kept, body }, null, 2)}\n`);
}
