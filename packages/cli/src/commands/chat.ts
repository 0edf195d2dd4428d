import { createInterface } from "node:readline";
import type { ChatMessage } from "@model-gateway/client";
import { CliError, type Command, type Invocation, text } from "../command.ts";
import { callableModels } from "./backends.ts";

/** The pieces of an answer: by key over the inference surface, or as the signed-in person. */
async function* answer(
  { connection }: Invocation,
  model: string,
  messages: ChatMessage[],
): AsyncGenerator<string> {
  if (connection.key !== null) {
    for await (const chunk of connection.client.rest.chatStream({ model, messages }))
      yield chunk.choices[0]?.delta.content ?? "";
    return;
  }
  const client = await connection.signedIn();
  for await (const part of client.chat({ model, messages })) yield part.content ?? "";
}

async function say(invocation: Invocation, model: string, messages: ChatMessage[]): Promise<string> {
  let whole = "";
  for await (const piece of answer(invocation, model, messages)) {
    whole += piece;
    if (!invocation.output.json) invocation.output.write(piece);
  }
  if (invocation.output.json) invocation.output.result({ model, content: whole }, () => "");
  else invocation.output.write("\n");
  return whole;
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
