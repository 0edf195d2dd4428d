import { startAnthropic } from "@model-gateway/testing/vendors/anthropic.ts";
import { startGemini } from "@model-gateway/testing/vendors/gemini.ts";
import type { FakeVendor, Script } from "@model-gateway/testing/vendors/model.ts";
import { startOpenAI } from "@model-gateway/testing/vendors/openai.ts";
import type { InferenceBench } from "../support/inference.ts";

export const DIALECTS = ["messages", "responses", "gemini", "chat"] as const;
export type DialectName = (typeof DIALECTS)[number];

/** A vendor of each dialect, with a model that thinks. */
const VENDORS: Record<DialectName, { model: string; start: () => FakeVendor }> = {
  messages: { model: "claude-opus-5-5", start: startAnthropic },
  responses: { model: "gpt-5.6-sol", start: startOpenAI },
  gemini: { model: "gemini-3.8-flash", start: startGemini },
  chat: { model: "deepseek-v4-pro", start: startOpenAI },
};
export const modelOf = (dialect: DialectName): string => VENDORS[dialect].model;

export interface Vendors extends Record<DialectName, FakeVendor> {
  stop(): void;
}

/** Each behind a backend of its dialect's name. */
export async function startVendors(bench: InferenceBench, script?: Script): Promise<Vendors> {
  const started: [string, FakeVendor][] = [];
  for (const name of DIALECTS) {
    const { model, start } = VENDORS[name];
    const fake = start();
    if (script) fake.script = script;
    // Each model has one backend.
    fake.upstream.listing((_, reply) => reply.json({}, 404));
    const { url, apiKey: api_key } = fake;
    await bench.addBackend({
      ...{ type: "external", url, api_key, name, models: [model], dialects: [name] },
    });
    started.push([name, fake]);
  }
  const stop = () => {
    for (const [, fake] of started) fake.stop();
  };
  return { ...(Object.fromEntries(started) as Record<DialectName, FakeVendor>), stop };
}
