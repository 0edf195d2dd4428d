import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

const piece = (delta: object, finish_reason: string | null = null) =>
  JSON.stringify(
    {
      id: "c",
      object: "chat.completion.chunk",
      created: 1,
      model: "m",
      choices: [{ index: 0, delta, finish_reason }],
    },
    null,
    1,
  );
const USAGE = JSON.stringify({
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [],
  usage: { prompt_tokens: 5, completion_tokens: 3 },
});
const flat = (json: string) => JSON.stringify(JSON.parse(json));
const EVENTS = [
  piece({ role: "assistant", content: "" }),
  ...["one ", "twö ", "three"].map((content) => piece({ content })),
  piece({}, "stop"),
].map(flat);
const plain = [...EVENTS, USAGE, "[DONE]"].map((data) => `data: ${data}\n\n`).join("");

const FORMS: Record<string, string> = {
  plain,
  "CRLF ends": plain.replaceAll("\n", "\r\n"),
  "CR ends": plain.replaceAll("\n", "\r"),
  "ends of all kinds": plain.replace(/\n\n/g, () => "\r\n\n").replace("\r\n\n", "\r\r"),
  "a byte order mark": `\ufeff${plain}`,
  "no blank behind the colon": plain.replaceAll("data: ", "data:"),
  "comments, ids, names and retry": plain.replaceAll(
    "data: ",
    ": a comment\nid: 7\nevent: message\nretry: 100\n:\ndata: ",
  ),
  "events without data": plain.replaceAll(
    "data: ",
    "data:\n\ndata: \n\ndata\n\nevent: ping\ndata:\n\ndata: ",
  ),
  "data in several lines": [
    ...EVENTS.map((data) =>
      JSON.stringify(JSON.parse(data), null, 1)
        .split("\n")
        .map((line) => `data: ${line}\n`)
        .join(""),
    ),
    `data: ${USAGE}\ndata:\n`,
    "data: [DONE]\n",
  ].join("\n"),
  "no end behind the last event": plain.trimEnd(),
};

/** The chunks of an event stream in any legal form. */
const chunksOf = (text: string) =>
  text
    .replace(/\r\n?/g, "\n")
    .split("\n\n")
    .map((event) => event.split("\n").filter((line) => line.startsWith("data")))
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.map((line) => line.replace(/^data:? ?/, "")).join("\n"))
    .filter((data) => data !== "[DONE]")
    .map((data) => JSON.parse(data));

/** The answer to chat.send as its subscriber hears it. */
async function heard(): Promise<{ text: string; usage: unknown }> {
  const messages = [{ role: "user", content: "count" }];
  const { stream_id } = await bench.rpc("chat.send", { model: "m", messages }, bench.token);
  const response = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}`);
  let text = "";
  let rest = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body!) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const { params } = JSON.parse(line.slice(6));
      if (params.error) throw new Error(params.error.message);
      text += params.content ?? "";
      if (params.done) return { text, usage: params.usage };
    }
  }
  throw new Error("the stream ended");
}

const usage = { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 };

for (const [form, stream] of Object.entries(FORMS)) {
  describe(`an upstream's stream with ${form}`, () => {
    for (const size of [1, 7, 100_000]) {
      test(`in pieces of ${size}`, async () => {
        const bytes = Buffer.from(stream);
        bench.upstream.answer(async (_, reply) => {
          reply.head(200, { "content-type": "text/event-stream" });
          for (let at = 0; at < bytes.length; at += size) await reply.write(bytes.subarray(at, at + size));
          await reply.end();
        });
        const request = { stream: true, stream_options: { include_usage: true } };
        const events = chunksOf(await (await bench.chat(request)).text());
        const text = events.map(({ choices }) => choices?.[0]?.delta?.content ?? "").join("");
        expect(text).toBe("one twö three");
        expect(events.findLast(({ usage: told }) => told)?.usage).toEqual(usage);
        expect(await heard()).toEqual({ text: "one twö three", usage });
        const messages = { model: "m", max_tokens: 100, messages: [{ role: "user", content: "x" }] };
        const told = await (await bench.post("/v1/messages", { ...messages, stream: true })).text();
        expect([...told.matchAll(/"text":"([^"]+)"/g)].map(([, part]) => part).join("")).toBe(
          "one twö three",
        );
      });
    }
  });
}
