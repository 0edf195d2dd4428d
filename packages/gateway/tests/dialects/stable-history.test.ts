import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMemoryServer } from "@model-gateway/memory-server/server.ts";
import type { ModelTurn } from "@model-gateway/testing/vendors/model.ts";
import fc from "fast-check";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { DIALECTS, modelOf, startVendors, type Vendors } from "./vendors.ts";

/** What was sent in one turn is the beginning of what is sent in the next, whatever was said: recall, two messages in a row, results, images. */
// biome-ignore lint/suspicious/noExplicitAny: bodies of four APIs
type Json = any;
const PNG =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let bench: InferenceBench;
let memory: Awaited<ReturnType<typeof startMemoryServer>>;
const dataDir = mkdtempSync(join(tmpdir(), "stable-history-"));
let vendors: Vendors;
/** What the model does next. */
let turns: ModelTurn[] = [];
beforeAll(async () => {
  memory = await startMemoryServer({ port: 0, dataDir });
  bench = await bootInference({ config: { memoryUrl: memory.url } });
  vendors = await startVendors(bench, () => turns.shift() ?? { thinking: "Hm.", text: "Yes." });
});
afterAll(async () => {
  vendors.stop();
  await bench.stop();
  await memory.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

/** All that a model is told, as a list; without the marks of the cache, which move. */
function told(body: Json): string[] {
  const unmarked = JSON.parse(JSON.stringify(body), (name, value) =>
    name === "cache_control" ? undefined : value,
  );
  const { system = [], systemInstruction = null, instructions = null, tools = [] } = unmarked;
  const blocks = (message: Json): Json[] => {
    const { role, type, parts, content, ...rest } = message;
    const inner = parts ?? (typeof content === "string" ? [content] : content);
    if (!Array.isArray(inner)) return [message];
    return [
      ...inner.map((each: Json) => [role, type, each]),
      ...(Object.keys(rest).length > 0 ? [rest] : []),
    ];
  };
  const all = (unmarked.messages ?? unmarked.input ?? unmarked.contents).flatMap(blocks);
  return [tools, system, systemInstruction, instructions, ...all].map((each) => JSON.stringify(each));
}

/** The client of each API that can be translated, in the least that it needs. */
const said = fc.oneof(
  fc.record({
    kind: fc.constant("text" as const),
    text: fc.constantFrom("I like tea.", "What do I like?", "Über 🎉\n\n", "{}"),
  }),
  fc.record({ kind: fc.constant("two" as const), text: fc.constantFrom("First this.", "And then?") }),
  fc.record({ kind: fc.constant("image" as const), text: fc.constantFrom("Look.", "See?") }),
);
const conversation = fc.array(fc.record({ said, calls: fc.nat(2), isSilent: fc.boolean() }), {
  minLength: 2,
  maxLength: 4,
});

const userMessages = ({ kind, text }: { kind: "text" | "two" | "image"; text: string }): Json[] => {
  if (kind === "text") return [{ role: "user", content: text }];
  if (kind === "two") return [text, `${text} Well?`].map((content) => ({ role: "user", content }));
  const image = { type: "image_url", image_url: { url: PNG } };
  return [{ role: "user", content: [{ type: "text", text }, image] }];
};

const TOOLS = [{ type: "function", function: { name: "look", parameters: { type: "object" } } }];

/** A client of a conversation: says what is new, and returns the calls that it has to answer. */
interface Client {
  say(messages: Json[]): Promise<string[]>;
}

/** Sends all of it each time; of thoughts, what DeepSeek wants back. */
function sendingAll(model: string, keepsThoughts: boolean): Client {
  const all: Json[] = [];
  return {
    async say(messages) {
      all.push(...messages);
      const answer = await bench.chat({ model, messages: all, tools: TOOLS, reasoning_effort: "high" });
      const body = (await answer.json()) as Json;
      expect([answer.status, body.error]).toEqual([200, undefined]);
      const { content, tool_calls, reasoning_content } = body.choices[0].message;
      const thoughts = keepsThoughts ? { reasoning_content } : {};
      all.push({ role: "assistant", content, ...(tool_calls && { tool_calls }), ...thoughts });
      return (tool_calls ?? []).map(({ id }: Json) => id);
    },
  };
}

/** Sends what is new; the gateway keeps the rest. */
async function goingOn(model: string): Promise<Client> {
  const { id: conversation_id } = await bench.rpc("conversations.create", {}, bench.token);
  return {
    async say(messages) {
      const asked = { model, conversation_id, messages, tools: TOOLS, reasoning_effort: "high" };
      const { stream_id } = await bench.rpc("chat.send", asked, bench.token);
      const events = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}`);
      let text = "";
      for await (const piece of events.body!) {
        text += Buffer.from(piece).toString();
        if (text.includes('"done":true') || text.includes('"error"')) break;
      }
      expect(text).toContain('"done":true');
      const stored = await bench.rpc("conversations.get", { conversation_id }, bench.token);
      return (stored.messages.at(-1).tool_calls ?? []).map(({ id }: Json) => id);
    },
  };
}

describe.each([...DIALECTS])("%s", (dialect) => {
  const fake = () => vendors[dialect];
  const model = modelOf(dialect);
  test.each([
    ["all of it is sent", async () => sendingAll(model, dialect === "chat")],
    ["the gateway has it", () => goingOn(model)],
  ])("%s", async (_, open) => {
    await fc.assert(
      fc.asyncProperty(conversation, async (steps) => {
        const client = await open();
        let before: string[] = [];
        let news: Json[] = [{ role: "system", content: "Be brief." }];
        for (const step of steps) {
          news.push(...userMessages(step.said));
          turns = Array.from({ length: step.calls }, (_, at) => ({
            thinking: "A tool knows.",
            ...(!step.isSilent && { text: `Looking ${at}.` }),
            calls: [{ name: "look", args: { at, 'quo"ted': [1, null, "ü"] } }],
          }));
          while (news.length > 0) {
            const calls = await client.say(news);
            const now = told(fake().requests.at(-1)!.json);
            expect(now.slice(0, before.length)).toEqual(before);
            before = now;
            news = calls.map((id) => ({ role: "tool", tool_call_id: id, content: `{"seen": 1}` }));
          }
        }
      }),
      { numRuns: 6 },
    );
  });
});
