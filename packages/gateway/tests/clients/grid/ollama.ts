import { type Message, Ollama } from "ollama";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const clientOf = ({ url, key }: Door) =>
  new Ollama({ host: url, headers: { authorization: `Bearer ${key}` } });
const user = (content: string): Message => ({ role: "user", content });

export const ollama: Client = {
  name: "Ollama's client",
  version: `ollama ${versionOf("ollama")}`,
  surface: "/api/chat",
  async ask(door, { prompt, stream }) {
    const client = clientOf(door);
    const request = { model: door.model, messages: [user(prompt)] };
    if (!stream) return (await client.chat(request)).message.content;
    return joined(await client.chat({ ...request, stream: true }), ({ message }) => message.content);
  },
  async useTool(door, prompt) {
    const client = clientOf(door);
    const tools = [{ type: "function", function: TOOL }];
    const messages = [user(prompt)];
    for await (const { message } of await client.chat({ model: door.model, messages, tools, stream: true }))
      if (message.tool_calls) messages.push(message);
    messages.push({ role: "tool", tool_name: TOOL.name, content: WEATHER });
    const answer = await client.chat({ model: door.model, messages, tools, stream: true });
    return joined(answer, ({ message }) => message.content);
  },
  leave: (door, prompt) =>
    leaving(async (controller) => {
      const client = clientOf(door);
      for await (const _ of await client.chat({
        model: door.model,
        messages: [user(prompt)],
        stream: true,
      })) {
        controller.abort();
        client.abort();
      }
    }),
};
