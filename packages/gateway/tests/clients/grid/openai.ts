import OpenAI from "openai";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const clientOf = ({ url, key }: Door) => new OpenAI({ apiKey: key, baseURL: `${url}/v1` });
const user = (content: string) => ({ role: "user" as const, content });
const version = `openai ${versionOf("openai")}`;

export const chat: Client = {
  name: "OpenAI SDK, chat completions",
  version,
  surface: "/v1/chat/completions",
  async ask(door, { prompt, stream }) {
    const { completions } = clientOf(door).chat;
    const request = { model: door.model, messages: [user(prompt)] };
    if (!stream) return (await completions.create(request)).choices[0]!.message.content!;
    return joined(
      await completions.create({ ...request, stream: true }),
      (part) => part.choices[0]?.delta.content,
    );
  },
  async useTool(door, prompt) {
    const runner = clientOf(door).chat.completions.runTools({
      model: door.model,
      messages: [user(prompt)],
      stream: true,
      tools: [{ type: "function", function: { ...TOOL, parse: JSON.parse, function: () => WEATHER } }],
    });
    return (await runner.finalContent()) ?? "";
  },
  leave: (door, prompt) =>
    leaving(async (controller) => {
      const { signal } = controller;
      const request = { model: door.model, messages: [user(prompt)], stream: true as const };
      for await (const _ of await clientOf(door).chat.completions.create(request, { signal }))
        controller.abort();
    }),
};

export const responses: Client = {
  name: "OpenAI SDK, responses",
  version,
  surface: "/v1/responses",
  async ask(door, { prompt, stream }) {
    const { responses } = clientOf(door);
    const request = { model: door.model, input: prompt };
    if (!stream) return (await responses.create(request)).output_text;
    return joined(await responses.create({ ...request, stream: true }), (event) =>
      event.type === "response.output_text.delta" ? event.delta : "",
    );
  },
  async useTool(door, prompt) {
    const { responses } = clientOf(door);
    const request = { model: door.model, tools: [{ type: "function" as const, strict: true, ...TOOL }] };
    const first = await responses.stream({ ...request, input: prompt }).finalResponse();
    const call = first.output.find((item) => item.type === "function_call");
    if (!call) throw new Error(`no call in ${JSON.stringify(first.output)}`);
    const input = [
      user(prompt),
      call,
      { type: "function_call_output" as const, call_id: call.call_id, output: WEATHER },
    ];
    return (await responses.stream({ ...request, input }).finalResponse()).output_text;
  },
  leave: (door, prompt) =>
    leaving(async (controller) => {
      const { signal } = controller;
      const request = { model: door.model, input: prompt, stream: true as const };
      for await (const event of await clientOf(door).responses.create(request, { signal }))
        if (event.type === "response.output_text.delta") controller.abort();
    }),
};
