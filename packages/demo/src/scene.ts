import type { Caller } from "./calls.ts";
import { VIDEO_MODEL } from "./video-server.ts";

const WITHIN_MS = 15_000;
const POLL_MS = 50;

/** What somebody talked about: a title, and their words in turn. Memory keeps facts of it. */
const CONVERSATIONS = [
  {
    title: "Planning the lab's poster",
    words: [
      "I lead the vision lab, and our poster is due on the 12th.",
      "Which three figures should a poster about retrieval have?",
    ],
  },
  {
    title: "A function in Python",
    words: [
      "I prefer Python with type hints. Show me a function that reverses a list.",
      "Now without slicing, please.",
    ],
  },
  { title: "Names for a boat", words: ["My boat is called Heron. What could her tender be called?"] },
] as const;

const VIDEO_USD_PER_SECOND = 0.02;
const VIDEO_PROMPT = "A white ball rolls over a blue floor, seen from the side";

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadlineMs = Date.now() + WITHIN_MS;
  while (!(await holds())) {
    if (Date.now() > deadlineMs)
      throw new Error(`the demonstration could not be set up: ${what} took too long`);
    await Bun.sleep(POLL_MS);
  }
}

/** Conversations, a model route and a video, made as a person makes them; the conversations side by side, as each takes a second. */
export async function playPast({ rpc }: Caller, model: string): Promise<void> {
  const converse = async ({ title, words }: (typeof CONVERSATIONS)[number]) => {
    const { id } = await rpc<{ id: string }>("conversations.create", { title });
    for (const [turn, content] of words.entries()) {
      await rpc("chat.send", { model, conversation_id: id, messages: [{ role: "user", content }] });
      await until(title, async () => {
        const { messages } = await rpc<{ messages: unknown[] }>("conversations.get", { conversation_id: id });
        return messages.length >= (turn + 1) * 2;
      });
    }
  };
  await Promise.all(CONVERSATIONS.map(converse));
  await rpc("routes.set", {
    name: "assistant",
    targets: [
      { model, order: 1 },
      { model: "gpt-4o", order: 2 },
    ],
    begin_within_seconds: 10,
  });
  await rpc("billing.prices.video.set", { model: VIDEO_MODEL, price_per_second: VIDEO_USD_PER_SECOND });
  await rpc("video.create", { model: VIDEO_MODEL, prompt: VIDEO_PROMPT, duration_seconds: 6 });
}

/** The models of the last minutes, in an order in which no two failures follow each other. */
const LATELY = [
  "demo",
  "demo-500",
  "demo",
  "demo-429",
  "demo",
  "demo-none",
  "demo",
  "demo-cut",
  "demo",
  "demo",
] as const;

/** Requests of this minute, some of which fail: the overview shows the last hour, which no start remembers. */
export async function playNow({ chat, rpc }: Caller): Promise<void> {
  await rpc("routes.set", { name: "default", targets: [{ model: "demo" }] });
  for (const model of LATELY) await chat(model, `Hello, ${model}`);
}
