import { createInterface } from "node:readline";
import type { ChatMessage, ChatUsage } from "@model-gateway/client";
import { CliError, type Command, type Invocation, text } from "../command.ts";
import { callableModels } from "./backends.ts";

/** A piece of an answer; the last one has the usage. */
interface Piece {
  content?: string;
  reasoning?: string;
  usage?: ChatUsage | null;
}

/** By key over the inference surface, or as the signed-in person. */
async function* answer(
  { connection }: Invocation,
  model: string,
  messages: ChatMessage[],
): AsyncGenerator<Piece> {
  if (connection.key !== null) {
    for await (const { choices, usage } of connection.client.rest.chatStream({ model, messages })) {
      const delta = choices[0]?.delta as {
        content?: string | null;
        reasoning?: string;
        reasoning_content?: string;
      };
      yield {
        content: delta?.content ?? "",
        reasoning: delta?.reasoning ?? delta?.reasoning_content ?? "",
        usage,
      };
    }
    return;
  }
  const client = await connection.signedIn();
  for await (const part of client.chat({ model, messages }))
    yield {
      content: part.content ?? "",
      reasoning: part.reasoning ?? "",
      usage: part.usage as ChatUsage | null | undefined,
    };
}

const SECOND_MS = 1000;

/** "12 tokens in, 34 out, 1.2 s". */
function usageInWords(
  { prompt_tokens, completion_tokens }: NonNullable<ChatUsage>,
  startedAtMs: number,
): string {
  const seconds = ((Date.now() - startedAtMs) / SECOND_MS).toFixed(1);
  return `${prompt_tokens} tokens in, ${completion_tokens} out, ${seconds} s`;
}

/** The answer goes to the output; what the model thinks and what it cost are remarks beside it. */
async function say(invocation: Invocation, model: string, messages: ChatMessage[]): Promise<string> {
  const { output, options } = invocation;
  const startedAtMs = Date.now();
  let content = "";
  let reasoning = "";
  let usage: ChatUsage | null = null;
  for await (const piece of answer(invocation, model, messages)) {
    if (piece.usage) usage = piece.usage;
    if (piece.reasoning) {
      reasoning += piece.reasoning;
      if (!output.json && !options["no-reasoning"])
        process.stderr.write(output.paint("dim", piece.reasoning, "stderr"));
    }
    if (piece.content) {
      const isFirst = content === "";
      content += piece.content;
      if (isFirst && reasoning !== "" && !options["no-reasoning"]) output.note("\n");
      if (!output.json) output.write(piece.content);
    }
  }
  if (output.json)
    output.result({ model, content, ...(reasoning && { reasoning }), ...(usage && { usage }) }, () => "");
  else {
    output.write("\n");
    if (usage) output.note(output.paint("dim", usageInWords(usage, startedAtMs), "stderr"));
  }
  return content;
}

async function converse(invocation: Invocation, model: string, messages: ChatMessage[]): Promise<void> {
  invocation.output.note(`${model}. An empty line ends it.`);
  const reader = createInterface({ input: process.stdin, terminal: false });
  const prompt = () => process.stderr.write("> ");
  prompt();
  // The lines are taken one by one, so that what is typed ahead waits for its turn.
  for await (const line of reader) {
    const words = line.trim();
    if (words === "") break;
    messages.push({ role: "user", content: words });
    messages.push({ role: "assistant", content: await say(invocation, model, messages) });
    prompt();
  }
  reader.close();
}

export const chat: Command = {
  name: "chat",
  summary: "Talk to a model; the answer streams",
  examples: [
    'model-gateway chat --model qwen3:8b "Why is the sky blue?"',
    "model-gateway chat",
    "cat notes.txt | model-gateway chat --system 'Summarise in three lines'",
  ],
  options: {
    model: { type: "string", short: "m", help: "model id; the first that can be called unless given" },
    system: { type: "string", help: "system prompt" },
    "no-reasoning": { type: "boolean", help: "do not show what the model thinks before it answers" },
  },
  async run(invocation) {
    const { words, options, connection } = invocation;
    const model = text(options, "model") ?? (await callableModels(connection))[0]?.id;
    if (!model)
      throw new CliError("no model can be called; register a backend: model-gateway backends add <url>");
    const system = text(options, "system");
    const messages: ChatMessage[] = system === null ? [] : [{ role: "system", content: system }];
    if (words.length === 0 && process.stdin.isTTY) return converse(invocation, model, messages);
    const prompt =
      words.length > 0 ? words.join(" ") : (await new Response(Bun.stdin.stream()).text()).trim();
    if (prompt === "") throw new CliError("there is nothing to send");
    await say(invocation, model, [...messages, { role: "user", content: prompt }]);
  },
};
