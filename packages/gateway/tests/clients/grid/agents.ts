import { Agent, OpenAIProvider, Runner, tool } from "@openai/agents";
import OpenAI from "openai";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const weather = tool({ ...TOOL, strict: true, execute: async () => WEATHER });

function client(surface: string, useResponses: boolean): Client {
  const runnerOf = ({ url, key }: Door) =>
    new Runner({
      modelProvider: new OpenAIProvider({
        openAIClient: new OpenAI({ apiKey: key, baseURL: `${url}/v1` }),
        useResponses,
      }),
      tracingDisabled: true,
    });
  const agentOf = ({ model }: Door) => new Agent({ name: "grid", model });
  const streamed = async (door: Door, agent: Agent, prompt: string) => {
    const run = await runnerOf(door).run(agent, prompt, { stream: true });
    const text = await joined(run.toTextStream() as AsyncIterable<string>, (piece) => piece);
    await run.completed;
    return text;
  };
  return {
    name: `OpenAI Agents, ${useResponses ? "responses" : "chat completions"}`,
    version: `@openai/agents ${versionOf("@openai/agents")}`,
    surface,
    ask: async (door, { prompt, stream }) =>
      stream
        ? streamed(door, agentOf(door), prompt)
        : ((await runnerOf(door).run(agentOf(door), prompt)).finalOutput ?? ""),
    useTool: (door, prompt) =>
      streamed(door, new Agent({ name: "grid", model: door.model, tools: [weather] }), prompt),
    leave: (door, prompt) =>
      leaving(async (controller) => {
        const { signal } = controller;
        const run = await runnerOf(door).run(agentOf(door), prompt, { stream: true, signal });
        for await (const _ of run.toTextStream() as AsyncIterable<string>) controller.abort();
        await run.completed;
      }),
  };
}

export const agents: readonly Client[] = [
  client("/v1/chat/completions", false),
  client("/v1/responses", true),
];
