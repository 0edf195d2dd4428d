import { GoogleGenAI } from "@google/genai";
import { type Client, type Door, joined, leaving, TOOL, versionOf, WEATHER } from "./client.ts";

const modelsOf = ({ url, key }: Door) =>
  new GoogleGenAI({ apiKey: key, vertexai: false, httpOptions: { baseUrl: url } }).models;

export const gemini: Client = {
  name: "Google Gen AI SDK",
  version: `@google/genai ${versionOf("@google/genai")}`,
  surface: "/v1beta/models/{call}",
  async ask(door, { prompt, stream }) {
    const request = { model: door.model, contents: prompt };
    if (!stream) return (await modelsOf(door).generateContent(request)).text ?? "";
    return joined(await modelsOf(door).generateContentStream(request), ({ text }) => text);
  },
  async useTool(door, prompt) {
    const { name, description, parameters } = TOOL;
    const functionDeclarations = [{ name, description, parametersJsonSchema: parameters }];
    const request = { model: door.model, config: { tools: [{ functionDeclarations }] } };
    const asked = { role: "user", parts: [{ text: prompt }] };
    const first = await modelsOf(door).generateContent({ ...request, contents: [asked] });
    const [call] = first.functionCalls ?? [];
    if (!call) throw new Error(`no call in ${JSON.stringify(first)}`);
    const functionResponse = { id: call.id, name: call.name, response: { output: WEATHER } };
    const contents = [asked, first.candidates![0]!.content!, { role: "user", parts: [{ functionResponse }] }];
    return (await modelsOf(door).generateContent({ ...request, contents })).text ?? "";
  },
  leave: (door, prompt) =>
    leaving(async (controller) => {
      const config = { abortSignal: controller.signal };
      const request = { model: door.model, contents: prompt, config };
      for await (const _ of await modelsOf(door).generateContentStream(request)) controller.abort();
    }),
};
