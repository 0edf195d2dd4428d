import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import type { Address } from "./bench.ts";
import { installed, nodePath } from "./installed.ts";
import { startCommand, untilReady } from "./processes.ts";
import { folder, type Target } from "./targets.ts";

/** 3.1.1 needs a package that the registry does not have (`@the-next-ai/ai-gateway`). */
const PACKAGE = { name: "@musistudio/claude-code-router", version: "2.0.0", file: "dist/cli.js" };
/** Per request it takes many times what the gateway takes. */
const SHARE = 0.2;

/**
 * claude-code-router as `ccr start` runs it: a client that speaks Messages, an upstream that speaks chats. It keeps
 * its settings in the home folder, so it gets one of its own, and never sees a person's.
 */
export async function startRouter(upstreamPort: number): Promise<Target> {
  const program = installed(PACKAGE);
  const port = await freePort();
  const home = mkdtempSync(join(folder, "router-"));
  const settings = join(home, ".claude-code-router");
  mkdirSync(settings);
  const provider = {
    name: "bench",
    api_base_url: `http://127.0.0.1:${upstreamPort}/v1/chat/completions`,
    api_key: "none",
    models: ["bench"],
  };
  writeFileSync(
    join(settings, "config.json"),
    JSON.stringify({
      HOST: "127.0.0.1",
      PORT: port,
      LOG: false,
      NON_INTERACTIVE_MODE: true,
      Providers: [provider],
      Router: { default: "bench,bench" },
    }),
  );
  const beganAt = performance.now();
  const { pid } = startCommand([nodePath(), program, "start"], { HOME: home }, home);
  await untilReady("claude-code-router", async () => (await fetch(`http://127.0.0.1:${port}/health`)).ok);
  const startedMs = performance.now() - beganAt;
  return { peer: "router", pid, port, key: "none", headers: "", share: SHARE, startedMs };
}

const CALL = { path: "src/a.ts", limit: 100 };
/** A history with a tool's call and result, as agents send it: all of it has to be said in the other API's words. */
const ASKED = {
  model: "bench",
  max_tokens: 100,
  tools: [{ name: "read_file", description: "Reads", input_schema: { type: "object", properties: {} } }],
  messages: [
    { role: "user", content: "hi" },
    { role: "assistant", content: [{ type: "tool_use", id: "call_1", name: "read_file", input: CALL }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1", content: "ok" }] },
  ],
};

async function ask({ port, key }: Address, body: object): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/messages`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  });
  return response.text();
}

const TOKEN = /"text_delta","text":"t\d{16}"/g;

/** Throws unless Messages are answered in their own form, whole and streamed, with the upstream's text and usage. */
export async function checkMessages(who: string, address: Address): Promise<void> {
  const whole = await ask(address, ASKED);
  const message = JSON.parse(whole) as {
    type?: string;
    content?: { text?: string }[];
    usage?: { input_tokens: number; output_tokens: number };
  };
  const streamed = await ask(address, { ...ASKED, stream: true });
  const tokens = streamed.match(TOKEN)?.length ?? 0;
  const right = {
    "the kind of a whole answer": message.type === "message",
    "its text": message.content?.[0]?.text?.startsWith("word word") === true,
    "its usage": message.usage?.input_tokens === 9 && message.usage.output_tokens === tokens,
    "the first event of a stream": streamed.startsWith("event: message_start\n"),
    "its tokens": tokens > 0,
    "its last event": streamed.trimEnd().split("\n\n").at(-1)!.startsWith("event: message_stop\n"),
  };
  const wrong = Object.entries(right).filter(([, isRight]) => !isRight);
  if (wrong.length > 0)
    throw new Error(`${who} does not answer Messages rightly: ${wrong.map(([what]) => what).join(", ")}`);
}
