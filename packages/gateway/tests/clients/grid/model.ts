/** The model behind the gateway: what it does depends on the prompt, so that clients with prompts of their own fit in. */
import {
  chunk,
  DONE,
  type ReceivedRequest,
  type Reply,
  type UpstreamHandler,
  usageChunk,
} from "@model-gateway/testing/upstream.ts";
import { WEATHER } from "./client.ts";

export const ANSWER = "The sky is blue because of Rayleigh.";
export const PROMPTS = {
  ask: "Why is the sky blue?",
  tool: "What is the weather in Oslo?",
  overflow: "Read this very long book.",
  leave: "Count up to infinity.",
} as const;

/** As llama.cpp says it. */
export const OVERFLOW = { prompt: 9_000, context: 4_096 };
const overflow = {
  error: {
    code: 400,
    message: `request (${OVERFLOW.prompt} tokens) exceeds the available context size (${OVERFLOW.context} tokens), try increasing it`,
    type: "exceed_context_size_error",
    n_prompt_tokens: OVERFLOW.prompt,
    n_ctx: OVERFLOW.context,
  },
};

// biome-ignore lint/suspicious/noExplicitAny: bodies of many clients
type Body = any;

/** Programs have tools of their own; one that runs a command can say the weather too. */
const COMMAND = `echo ${WEATHER}`;
const ARGUMENTS: Record<string, object> = {
  weather: { city: "Oslo" },
  Bash: { command: COMMAND, description: "Say the weather" },
  bash: { command: COMMAND, description: "Say the weather" },
  shell: { command: ["bash", "-c", COMMAND] },
  shell_command: { command: COMMAND },
  exec_command: { cmd: COMMAND },
  run_shell_command: { command: COMMAND, description: "Say the weather" },
};

const textOf = (content: Body): string =>
  typeof content === "string"
    ? content
    : Array.isArray(content)
      ? content.map((part) => part.text ?? "").join("\n")
      : "";

async function say(body: Body, reply: Reply, text: string): Promise<void> {
  if (!body.stream) {
    const message = { role: "assistant", content: text };
    return reply.json(whole(message, "stop"));
  }
  const pieces = text.match(/\S+\s*/g) ?? [];
  return reply.stream([
    chunk({ delta: { role: "assistant", content: "" } }),
    ...pieces.map((content) => chunk({ delta: { content } })),
    chunk({ finish_reason: "stop" }),
    usageChunk(),
    DONE,
  ]);
}

async function call(body: Body, reply: Reply, name: string): Promise<void> {
  const parameters = JSON.stringify(ARGUMENTS[name]);
  const called = { id: "call_1", type: "function", function: { name, arguments: parameters } };
  if (!body.stream) {
    const message = { role: "assistant", content: null, tool_calls: [called] };
    return reply.json(whole(message, "tool_calls"));
  }
  const begun = { index: 0, ...called, function: { name, arguments: "" } };
  const [first, rest] = [parameters.slice(0, 5), parameters.slice(5)];
  return reply.stream([
    chunk({ delta: { role: "assistant", content: null, tool_calls: [begun] } }),
    chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: first } }] } }),
    chunk({ delta: { tool_calls: [{ index: 0, function: { arguments: rest } }] } }),
    chunk({ finish_reason: "tool_calls" }),
    usageChunk(),
    DONE,
  ]);
}

const whole = (message: object, finish_reason: string) => ({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_763_000_000,
  model: "m",
  choices: [{ index: 0, message, finish_reason }],
  usage: { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 },
});

/** For as long as it is listened to. */
const countUp: UpstreamHandler = async (request, reply) => {
  reply.head(200, { "content-type": "text/event-stream" });
  for (let i = 1; request.closedAtMs === null; i++) {
    await reply.write(chunk({ delta: { role: "assistant", content: `${i} ` } }));
    await Bun.sleep(10);
  }
};

/** Whether a request asks to count, so that the answer has to be left. */
export const isLeft = ({ text }: ReceivedRequest): boolean => text.includes(PROMPTS.leave);

export const model: UpstreamHandler = (request, reply) => {
  const body: Body = request.json;
  const prompts = body.messages
    .filter(({ role }: Body) => role === "user")
    .map((each: Body) => textOf(each.content));
  const isAsked = (prompt: string) => prompts.some((text: string) => text.includes(prompt));
  const results = body.messages.filter(({ role }: Body) => role === "tool");
  const names = (body.tools ?? []).map((tool: Body) => tool.function.name as string);
  const name = names.find((each: string) => each in ARGUMENTS);
  if (isAsked(PROMPTS.overflow)) return reply.json(overflow, 400);
  if (isLeft(request)) return countUp(request, reply);
  if (isAsked(PROMPTS.tool) && results.length > 0)
    return say(body, reply, `The tool said: ${textOf(results.at(-1).content)}`);
  if (isAsked(PROMPTS.tool) && name) return call(body, reply, name);
  return say(body, reply, ANSWER);
};
