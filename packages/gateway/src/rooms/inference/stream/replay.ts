import type { Answer } from "../../../backends/contract.ts";
import { isObject } from "../../../kernel/json.ts";

const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;

export function replayAsStream(body: Buffer): Answer {
  const { choices, usage, ...rest } = JSON.parse(body.toString()) as Record<string, unknown>;
  const head = { ...rest, object: "chat.completion.chunk" };
  let text = "";
  for (const choice of (choices as unknown[]).filter(isObject)) {
    if (choice.text !== undefined && choice.message === undefined) {
      text += event({ ...rest, choices: [choice] });
      continue;
    }
    const { message, finish_reason, index = 0 } = choice;
    const delta: Record<string, unknown> = isObject(message) ? { ...message } : {};
    if (Array.isArray(delta.tool_calls)) {
      delta.tool_calls = delta.tool_calls.map((call, position) => ({ index: position, ...(call as object) }));
    }
    text += event({ ...head, choices: [{ index, delta, finish_reason: null }] });
    text += event({ ...head, choices: [{ index, delta: {}, finish_reason: finish_reason ?? "stop" }] });
  }
  if (usage) text += event({ ...head, choices: [], usage });
  return wholeAnswer(Buffer.from(`${text}data: [DONE]\n\n`));
}

const wholeAnswer = (bytes: Buffer): Answer => ({
  contentType: "text/event-stream",
  bytes: () => bytes,
  pipe: (reader) => ({
    pause() {},
    resume() {
      reader.piece(bytes);
      reader.flush();
      reader.end();
    },
    leave() {},
    cancel() {},
  }),
});
