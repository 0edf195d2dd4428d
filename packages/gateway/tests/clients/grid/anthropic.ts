import Anthropic from "@anthropic-ai/sdk";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const clientOf = ({ url, key }: Door) => new Anthropic({ authToken: key, apiKey: null, baseURL: url });
const user = (content: string) => ({ role: "user" as const, content });
const textOf = ({ content }: Anthropic.Message) =>
  content.map((block) => (block.type === "text" ? block.text : "")).join("");

export const anthropic: Client = {
  name: "Anthropic SDK",
  version: `@anthropic-ai/sdk ${versionOf("@anthropic-ai/sdk")}`,
  surface: "/v1/messages",
  async ask(door, { prompt, stream }) {
    const { messages } = clientOf(door);
    const request = { model: door.model, max_tokens: 1_000, messages: [user(prompt)] };
    if (!stream) return textOf(await messages.create(request));
    return joined(await messages.create({ ...request, stream: true }), (event) =>
      event.type === "content_block_delta" && event.delta.type === "text_delta" ? event.delta.text : "",
    );
  },
  async useTool(door, prompt) {
    const { messages } = clientOf(door);
    const { name, description, parameters } = TOOL;
    const request = {
      model: door.model,
      max_tokens: 1_000,
      tools: [{ name, description, input_schema: parameters }],
    };
    const first = await messages.stream({ ...request, messages: [user(prompt)] }).finalMessage();
    const call = first.content.find((block) => block.type === "tool_use");
    if (!call) throw new Error(`no call in ${JSON.stringify(first.content)}`);
    const result = { type: "tool_result" as const, tool_use_id: call.id, content: WEATHER };
    const history = [
      user(prompt),
      { role: "assistant" as const, content: first.content },
      { role: "user" as const, content: [result] },
    ];
    return textOf(await messages.stream({ ...request, messages: history }).finalMessage());
  },
  leave: (door, prompt) =>
    leaving(async (controller) => {
      const { signal } = controller;
      const request = {
        model: door.model,
        max_tokens: 1_000,
        messages: [user(prompt)],
        stream: true as const,
      };
      for await (const event of await clientOf(door).messages.create(request, { signal }))
        if (event.type === "content_block_delta") controller.abort();
    }),
};
