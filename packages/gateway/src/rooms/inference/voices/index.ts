import { chat, completions } from "./chat/index.ts";
import { messages } from "./messages/index.ts";
import { ollamaChat, ollamaGenerate } from "./ollama/index.ts";
import { responses } from "./responses/index.ts";
import type { Voice } from "./voice.ts";

/** Every chat and text API that the gateway offers. */
export const voices: readonly Voice[] = [chat, completions, responses, messages, ollamaChat, ollamaGenerate];
