import { describe, expect, test } from "bun:test";
import { chunk, DONE, usageChunk, wholeStream } from "@model-gateway/testing/upstream.ts";
import fc from "fast-check";
import { ServiceError } from "../../src/kernel/errors.ts";
import { ChatMeter, type ChatMeterOptions } from "../../src/rooms/inference/stream/chat-meter.ts";

const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;

/** Everything that a client would get, and the meter after it. */
function metered(
  text: string,
  { cuts = [], ...options }: Partial<ChatMeterOptions> & { cuts?: number[] } = {},
) {
  const bytes = Buffer.from(text);
  const meter = new ChatMeter({ keepUsage: false, ...options });
  const out: Uint8Array[] = [];
  const points = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  let from = 0;
  for (const to of [...points, bytes.length]) {
    if (meter.done || meter.failure !== null) break;
    const piece = meter.feed(bytes.subarray(from, to));
    if (piece) out.push(Buffer.from(piece));
    from = to;
  }
  if (!meter.done && meter.failure === null) {
    const rest = meter.flush();
    if (rest) out.push(rest);
  }
  if (meter.complete && meter.failure === null) out.push(meter.closing(null));
  return { meter, text: Buffer.concat(out).toString() };
}

const chunksOf = (text: string) =>
  text
    .split("\n\n")
    .filter((part) => part.startsWith("data: {"))
    .map((part) => JSON.parse(part.slice(6)));

describe("the stream meter", () => {
  const stream = wholeStream(["plain ", "Grüße ", '"quoted" ', "back\\slash ", "世界", "\n", ""]).join("");

  test("passes a well-formed stream byte for byte, apart from the usage chunk", () => {
    const { text, meter } = metered(stream);
    expect(text).toBe(stream.replace(usageChunk(), ""));
    expect(meter.usage).toEqual({ promptTokens: 9, completionTokens: 4 });
    expect(metered(stream, { keepUsage: true }).text).toBe(stream);
  });

  test("gives the same whatever the cuts", () => {
    const streams = [
      stream,
      stream.replaceAll("\n", "\r\n"),
      `: ping\n\n${stream.replaceAll("data: ", "data:")}`,
    ];
    fc.assert(
      fc.property(
        fc.constantFrom(...streams),
        fc.array(fc.nat({ max: 5_000 }), { maxLength: 40 }),
        (text, cuts) => {
          const whole = metered(text);
          const cut = metered(text, { cuts });
          expect(cut.text).toBe(whole.text);
          expect(cut.meter.usage).toEqual(whole.meter.usage);
          expect(cut.meter.textBytes).toBe(whole.meter.textBytes);
        },
      ),
      { numRuns: 300 },
    );
  });

  test("counts the text in bytes, the same for recognised and for parsed events", () => {
    const words = ["one ", "two ", "三 ", "four"];
    const expected = Buffer.byteLength(words.join(""));
    expect(metered(wholeStream(words).join("")).meter.textBytes).toBe(expected);
    const seen: string[] = [];
    const { meter } = metered(wholeStream(words).join(""), {
      onChunk: (_, choices) => seen.push(...choices.map(({ delta }) => String(delta.content ?? ""))),
    });
    expect(meter.textBytes).toBe(expected);
    expect(seen.join("")).toBe(words.join(""));
  });

  test("reads events of any spelling, and refuses what only looks like one", () => {
    const spaced = (content: string) =>
      `data: {"choices": [{"delta": {"content": ${JSON.stringify(content)}}, "index": 0}], "id": "x"}\n\n`;
    const text = ["a", "b", 'c"', "d\\", "e"].map(spaced).join("");
    const first = event({ choices: [{ index: 0, delta: { role: "assistant" } }] });
    const { meter } = metered(first + text + chunk({ finish_reason: "stop" }) + DONE);
    expect(meter.textBytes).toBe('abc"d\\e'.length);
    const sly = `data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "z": "y"}, "index": 0}], "id": "x"}\n\n`;
    expect(metered(first + text + sly).meter.failure).toContain("not JSON");
  });

  test("adds what strict clients need", () => {
    const bare = [
      event({ id: "1", choices: [{ delta: { content: "a" } }] }),
      event({
        id: "1",
        choices: [{ delta: { tool_calls: [{ id: "c1", function: { name: "f", arguments: "" } }] } }],
      }),
      event({ id: "1", choices: [{ delta: { tool_calls: [{ function: { arguments: "{}" } }] } }] }),
      event({
        id: "1",
        choices: [{ delta: { tool_calls: [{ id: "c2", function: { name: "g", arguments: "{}" } }] } }],
      }),
      event({ id: "1", timings: {} }),
      DONE,
    ].join("");
    const { text } = metered(bare);
    const [first, second, third, fourth, fifth, last] = chunksOf(text);
    expect(first.choices[0]).toEqual({
      index: 0,
      delta: { content: "a", role: "assistant" },
      finish_reason: null,
    });
    expect(second.choices[0].delta.tool_calls[0]).toMatchObject({ index: 0, id: "c1", type: "function" });
    expect(third.choices[0].delta.tool_calls[0]).toEqual({ index: 0, function: { arguments: "{}" } });
    expect(fourth.choices[0].delta.tool_calls[0]).toMatchObject({ index: 1, id: "c2" });
    expect(fifth).toEqual({ id: "1", timings: {}, choices: [] });
    expect(last.choices).toEqual([{ index: 0, delta: {}, finish_reason: "tool_calls" }]);
    expect(text).toEndWith(DONE);
  });

  test("leaves reasoning and unknown fields alone", () => {
    const odd = chunk({
      delta: { role: "assistant", reasoning: "hm", reasoning_content: "hm", new_field: [1] },
    });
    const { text, meter } = metered(odd + chunk({ finish_reason: "stop" }) + DONE);
    expect(text).toStartWith(odd);
    expect(meter.textBytes).toBe(2);
  });

  test("keeps usage that comes with the last text", () => {
    const { text, meter } = metered(
      chunk({
        delta: { role: "assistant", content: "a" },
        finish_reason: "stop",
        usage: { prompt_tokens: 1, completion_tokens: 1 },
      }) + DONE,
    );
    expect(meter.usage).toEqual({ promptTokens: 1, completionTokens: 1 });
    expect(chunksOf(text)[0].usage).toEqual({ prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 });
  });

  test("ends at an error in any form", () => {
    for (const error of [{ error: { message: "m1" } }, { error: "m1" }, { object: "error", message: "m1" }])
      expect(metered(event(error)).meter.failure).toBe("m1");
  });

  test("ignores what follows [DONE]", () => {
    const { text } = metered(`${wholeStream(["a"]).join("")}data: garbage\n\n`);
    expect(text).toEndWith(DONE);
    expect(text).not.toContain("garbage");
  });

  test("an error or end of its own never becomes part of an open event", () => {
    const meter = new ChatMeter({ keepUsage: false });
    meter.feed(Buffer.from(`${chunk({ delta: { role: "assistant", content: "a" } }).trimEnd()}\n`));
    expect(Buffer.from(meter.failing(new ServiceError("bad_gateway", "broken"))).toString()).toStartWith(
      '\n\ndata: {"error":{"message":"broken"',
    );
  });
});
