import { AIMessageChunk, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOllama } from "@langchain/ollama";
import { ChatOpenAI } from "@langchain/openai";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const tools = [{ type: "function" as const, function: TOOL }];

function client(
  library: string,
  surface: string,
  { modelOf, lacks }: { modelOf: (door: Door) => ChatOpenAI | ChatOllama; lacks?: Client["lacks"] },
): Client {
  return {
    name: `LangChain, ${library}`,
    version: `${library} ${versionOf(library)}`,
    surface,
    ...(lacks && { lacks }),
    async ask(door, { prompt, stream }) {
      const model = modelOf(door);
      return stream
        ? joined(await model.stream(prompt), (piece) => piece.text)
        : (await model.invoke(prompt)).text;
    },
    async useTool(door, prompt) {
      const model = modelOf(door).bindTools(tools);
      const question = new HumanMessage(prompt);
      let called = new AIMessageChunk({ content: "" });
      for await (const piece of await model.stream([question]))
        called = called.concat(piece as AIMessageChunk);
      const result = new ToolMessage({
        content: WEATHER,
        tool_call_id: called.tool_calls![0]!.id!,
        name: TOOL.name,
      });
      return joined(await model.stream([question, called, result]), (piece) => piece.text);
    },
    leave: (door, prompt) =>
      leaving(async (controller) => {
        const { signal } = controller;
        for await (const _ of await modelOf(door).stream(prompt, { signal })) controller.abort();
      }),
  };
}

export const langchain: readonly Client[] = [
  client("@langchain/openai", "/v1/chat/completions", {
    modelOf: ({ url, key, model }) =>
      new ChatOpenAI({ model, apiKey: key, configuration: { baseURL: `${url}/v1` } }),
  }),
  client("@langchain/ollama", "/api/chat", {
    modelOf: ({ url, key, model }) =>
      new ChatOllama({ model, baseUrl: url, headers: new Headers({ authorization: `Bearer ${key}` }) }),
    lacks: { whole: "always streams" },
  }),
];
