import { chat } from "./chat/index.ts";
import { messages } from "./messages/index.ts";
import { responses } from "./responses/index.ts";
import type { Voice } from "./voice.ts";

/** Every chat API that the gateway speaks, one line each. */
export const voices: readonly Voice[] = [chat, responses, messages];
