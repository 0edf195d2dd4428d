import { describe, expect, test } from "bun:test";
import { AnswerBody } from "../../src/rooms/inference/call/answer.ts";
import { largestUsage, usageOfTail, usagesIn } from "../../src/rooms/inference/call/usage-tail.ts";
import { Payload } from "../../src/rooms/inference/request/payload.ts";
import { mediaIn } from "../../src/rooms/metering/media.ts";

const usageOfEvents = (tail: string) => largestUsage(usagesIn(tail));
const usageIn = (bytes: Buffer) => usageOfTail(new AnswerBody(bytes));

const payload = (text: string) => Payload.read(Buffer.from(text));
const NOTHING: ReadonlyMap<string, string> = new Map();
const composed = async (text: string, set: ReadonlyMap<string, string> = NOTHING) =>
  Buffer.from((await payload(text)).compose(set).bytes() as Uint8Array).toString();

describe("a payload", () => {
  test("passes the client's own bytes when nothing changes", async () => {
    const text = ' { "model" : "m" , "messages":[ {"role":"user"} ], "x": 1.0e+2 }\n';
    expect(await composed(text)).toBe(text);
  });

  test("takes long texts of messages exactly where a JSON parser does", async () => {
    const long = "All work and no play. ".repeat(20);
    const ends = ["", "\\\\", '\\"', "\\u00e9", "\\\\u", "\\\\x", "\\\\\\n", "\\/", "\u007f", "é"];
    const wrong = ["\\x", "\\u00g9", "\\u12", "\\\\\\x", "\n", "\t", "\0", "\\", '"', "\\\\\\"];
    for (const part of [...ends, ...wrong])
      for (const content of [long + part, part + long, long + part + long]) {
        const text = `{"model":"m","messages":[{"role":"user","content":"${content}"}]}`;
        let whole: unknown;
        try {
          whole = JSON.parse(text);
        } catch {
          await expect(payload(text)).rejects.toThrow("not a valid JSON object");
          continue;
        }
        const read = await payload(text);
        expect(read.object()).toEqual(whole as Record<string, unknown>);
        expect(read.messagesProblem).toBeNull();
        expect(await composed(text)).toBe(text);
      }
    expect(wrong.length).toBe(10);
  });

  test("keeps what other fields than the messages say, and sees a vendor's words beside long texts", async () => {
    const long = 'A "quoted" line.\n'.repeat(40);
    const body = { model: "m", system: long, messages: [{ role: "user", content: long }] };
    const read = await payload(JSON.stringify(body));
    expect([read.value("system"), read.value("messages")]).toEqual([long, body.messages]);
    expect(read.mayNameVendors).toBe(false);
    const named = [{ role: "user", content: [{ type: "text", text: long }, { file_id: "file-1" }] }];
    expect((await payload(JSON.stringify({ model: "m", messages: named }))).mayNameVendors).toBe(true);
    const escaped = JSON.stringify({ model: "m", messages: named }).replace("file_id", "file\\u005fid");
    expect((await payload(escaped)).mayNameVendors).toBe(true);
  });

  test("loses the gateway's fields and keeps every other byte", async () => {
    const text =
      '{"conversation_id":"c","model":"m","memory":false,"seed":12345678901234567890,"provider":"p"}';
    expect(await composed(text)).toBe('{"model":"m","seed":12345678901234567890}');
  });

  test("merges extra without overriding the six protected fields, or any that the request has", async () => {
    const text = JSON.stringify({
      model: "m",
      messages: [],
      top_p: 0.5,
      tools: [{ type: "function" }],
      extra: {
        model: "x",
        stream: true,
        temperature: 2,
        max_tokens: 1,
        options: {},
        top_p: 1,
        tools: [1],
        top_k: 40,
      },
    });
    const { model, messages, top_p, tools } = JSON.parse(text);
    expect(JSON.parse(await composed(text))).toEqual({ model, messages, top_p, tools, top_k: 40 });
    expect(JSON.parse(await composed('{"model":"m","extra":[1]}'))).toEqual({ model: "m" });
    expect(JSON.parse(await composed('{"model":"m","extra":null}'))).toEqual({ model: "m" });
  });

  test("extra cannot set what the gateway sets; what has the name of a gateway's field is the upstream's", async () => {
    const text =
      '{"model":"m","provider":"first","memory":false,"extra":{"stream_options":{"x":1},"provider":{"order":["a"]},"memory":"long","input":1}}';
    const set = new Map([["stream_options", '{"include_usage":true}']]);
    expect(JSON.parse(await composed(text, set))).toEqual({
      model: "m",
      stream_options: { include_usage: true },
      provider: { order: ["a"] },
      memory: "long",
      input: 1,
    });
    // What an embeddings request is charged for.
    expect(JSON.parse(await composed('{"model":"m","input":"a","extra":{"input":"b"}}'))).toEqual({
      model: "m",
      input: "a",
    });
  });

  test("counts the last of repeated keys, as the upstream's parser does", async () => {
    const text = '{"model":"a","x":1,"model":"b","\\u006dodel":"c"}';
    expect((await payload(text)).value("model")).toBe("c");
    expect(await composed(text)).toBe('{"\\u006dodel":"c","x":1}');
  });

  test("does not mistake nested or inherited names for its own", async () => {
    const text =
      '{"messages":[{"model":"inner","stream":true}],"__proto__":{"provider":"x"},"constructor":1}';
    const body = await payload(text);
    expect(body.has("model")).toBe(false);
    expect(body.has("provider")).toBe(false);
    expect(await composed(text)).toBe(text);
    expect(({} as Record<string, unknown>).provider).toBeUndefined();
    expect(await composed('{"model":"m","extra":{"__proto__":{"a":1}}}')).toBe(
      '{"model":"m","__proto__":{"a":1}}',
    );
  });

  test("replaces and adds fields by splicing", async () => {
    const set = new Map([
      ["model", '"m:latest"'],
      ["added", "[1]"],
    ]);
    expect(JSON.parse(await composed('{"model":"m","n":1}', set))).toEqual({
      n: 1,
      model: "m:latest",
      added: [1],
    });
    expect(await composed("{}", new Map([["a", "1"]]))).toBe('{"a":1}');
  });

  test("knows where a name is repeated, however it is written", async () => {
    const repeats = async (list: string) => (await payload(`{"input":${list}}`)).repeatsNamesIn("input");
    for (const list of [
      '[{"é":1,"\\u00e9":2}]',
      '[[{"a":{"":1,"":":"}}]]',
      '[{"__proto__":1,"__proto__":2}]',
    ])
      expect(await repeats(list)).toBe(true);
    for (const list of ['[{"é":1,"\\u00c3\\u00a9":2}]', '[{"a":"b\\":c"},{"a":1}]', '"x:y"', "[1]"])
      expect(await repeats(list)).toBe(false);
  });

  test("is parsed only for those who ask", async () => {
    expect((await payload('{"model":"m","memory":true}')).compose(NOTHING).object()).toEqual({ model: "m" });
  });

  test("reads texts as they are, whatever their script, and messages that were not kept", async () => {
    const said = {
      model: "modèle",
      größe: 1,
      user: "😀",
      messages: [{ role: "user", content: `${'é "quoted"\n'.repeat(100)}` }],
      options: { naïve: "\u0000" },
    };
    const body = await payload(JSON.stringify(said));
    for (const [name, value] of Object.entries(said)) expect(body.value(name), name).toEqual(value);
    expect(Array.from(body.names())).toEqual(Object.keys(said));
  });

  test("is the same from bytes and from an object", async () => {
    const said = {
      model: "m",
      provider: "p",
      messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:x" } }] }],
      max_tokens: 5,
      options: { num_predict: 7 },
      prediction: { content: "some words" },
      extra: { n: 3, max_tokens: 9, top_k: 1, prediction: { content: "others" } },
    };
    const read = await payload(JSON.stringify(said));
    const made = new Payload({ ...said, left_out: undefined });
    expect(made.spendFields()).toEqual(read.spendFields());
    expect(made.mayHaveMedia).toBe(read.mayHaveMedia);
    expect(made.messagesProblem).toEqual(read.messagesProblem);
    const set = new Map([["model", '"other"']]);
    expect(made.compose(set).bytes().toString()).toBe(read.compose(set).bytes().toString());
  });
});

describe("media in a payload", () => {
  const url = "https://example.test/a.png";
  const nested = { type: "tool_result", content: [{ type: "image", source: { type: "url", url } }] };
  const named: Record<string, unknown>[] = [
    { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }] },
    { messages: [{ role: "user", content: "look", images: ["QUJD"] }] },
    { messages: [{ role: "user", content: [nested] }] },
    { messages: [{ role: "assistant", content: [{ type: "thinking", thinking: "…", signature: "QUJD" }] }] },
    { input: [{ role: "user", content: [{ type: "input_file", file_id: "file-1" }] }] },
    { input: [{ type: "function_call_output", output: [{ type: "input_image", image_url: url }] }] },
    { input: [{ type: "reasoning", encrypted_content: "QUJD" }] },
    { contents: [{ parts: [{ text: "see" }, { inlineData: { mimeType: "image/png", data: "QUJD" } }] }] },
    { contents: [{ parts: [{ file_data: { file_uri: url } }] }] },
  ];
  const words = ["image_url", "images", "source", "inlineData", "file_id"].join(" ");

  test.each(named)("are noticed in each dialect, escaped or not, beside long texts: %j", async (body) => {
    const json = JSON.stringify({ ...body, system: words, instructions: "long text ".repeat(100) });
    expect((await payload(json)).mayHaveMedia).toBe(true);
    const escaped = json.replace(/[_DS](?=[a-z]+":)/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
    expect((await payload(escaped)).mayHaveMedia).toBe(true);
    expect(mediaIn(Buffer.from(json)).tokens).toBeGreaterThan(0);
  });

  // Upstreams differ in which of repeated members they take; some take all.
  test.each(named)("are noticed where the next member of that name hides them: %j", async (body) => {
    const json = JSON.stringify(body).replace(
      /"(content|output|parts)":\[.*\](?=\}\]\}$)/,
      (list, name) => `${list} , "${name}" : "x"`,
    );
    expect((await payload(json)).mayHaveMedia).toBe(true);
  });

  test("are noticed in what is made from another API's request", () => {
    for (const { messages } of named.slice(0, 2)) expect(new Payload({ messages }).mayHaveMedia).toBe(true);
    expect(new Payload({ messages: [{ role: "user", content: words }] }).mayHaveMedia).toBe(false);
  });

  test.each([
    { messages: [{ role: "user", content: words }] },
    { messages: [{ role: "user", content: [{ type: "text", text: `{"image_url": "${words}"}` }] }] },
    { input: [{ type: "function_call", arguments: '{"source":{"data":"x"}}' }, { type: "images" }] },
    { input: [1, 2, 3] },
  ])("are not taken for what texts mention: %j", async (body) => {
    expect((await payload(JSON.stringify(body))).mayHaveMedia).toBe(false);
  });
});

describe("usage at the end of an answer", () => {
  const body = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));

  test("is read without parsing the rest", () => {
    const usage = {
      prompt_tokens: 3,
      completion_tokens: 4,
      total_tokens: 7,
      details: { usage: { prompt_tokens: 99 } },
    };
    const expected = { promptTokens: 3, completionTokens: 4 };
    expect(usageIn(body({ choices: [], usage }))).toEqual(expected);
    expect(usageIn(body({ choices: [], usage, service_tier: 'a "quoted" } thing' }))).toEqual(expected);
    expect(usageIn(body(JSON.stringify({ data: "x".repeat(20_000), usage }, null, 2)))).toEqual(expected);
    // Early in a long body.
    expect(usageIn(body({ usage, data: "x".repeat(20_000) }))).toEqual(expected);
  });

  test("is not confused by texts and deeper objects of that name", () => {
    const text = 'say "usage":{"prompt_tokens":5}';
    expect(usageIn(body({ choices: [{ message: { content: text } }] }))).toBeNull();
    expect(usageIn(body({ choices: [{ usage: { prompt_tokens: 5 } }] }))).toBeNull();
    const usage = { prompt_tokens: 1, completion_tokens: 2 };
    expect(usageIn(body({ usage, choices: [{ usage: { prompt_tokens: 5 } }] }))).toEqual({
      promptTokens: 1,
      completionTokens: 2,
    });
  });

  test("is found where its name has escapes in it, whatever else is there", () => {
    const expected = { promptTokens: 3, completionTokens: 4 };
    const usage = '"us\\u0061g\\u0065" : {"prompt_t\\u006Fkens":3,"completion_tokens":4}';
    const nested = { usage: { prompt_tokens: 5 } };
    for (const content of ["short", "x".repeat(20_000), '"usage":{"prompt_tokens":9}', "\\", nested]) {
      const choices = JSON.stringify([{ message: { content } }]);
      expect(usageIn(body(`{"choices":${choices},${usage}}`))).toEqual(expected);
      expect(usageIn(body(`{${usage},"choices":${choices}}`))).toEqual(expected);
    }
  });

  test("is nothing when it is null, missing or the body is no JSON", () => {
    const whole = '{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}';
    const broken = [
      "not json",
      '{"usage":{',
      `${whole}x`,
      `${whole}{`,
      `${whole}]`,
      `${whole}\v`,
      `[${whole}]`,
    ];
    for (const value of [{ usage: null }, {}, { usage: {} }, ...broken])
      expect(usageIn(body(value))).toBeNull();
    expect(usageIn(body(`${whole}\r\n \t`))).toEqual({ promptTokens: 1, completionTokens: 2 });
    expect(usageIn(body({ usage: { total_tokens: 8 } }))).toEqual({
      promptTokens: 8,
      completionTokens: 0,
      lacks: "both",
    });
    // Where one of the two is missing, it is the rest of the sum.
    expect(usageIn(body({ usage: { prompt_tokens: 8, total_tokens: 500 } }))).toEqual({
      promptTokens: 8,
      completionTokens: 492,
    });
  });

  test("is absurd when it is no whole number from 0 to ten million", () => {
    for (const figure of [-1, 0.5, 1e308, 10_000_001, "12", true, [], {}]) {
      for (const name of ["prompt_tokens", "completion_tokens", "total_tokens", "output_tokens"]) {
        const usage = {
          prompt_tokens: 1,
          ...(name !== "output_tokens" && { completion_tokens: 1 }),
          [name]: figure,
        };
        expect(usageIn(body({ choices: [], usage }))).toBe("absurd");
      }
    }
    const most = { prompt_tokens: 10_000_000, completion_tokens: 0 };
    expect(usageIn(body({ usage: most }))).toEqual({ promptTokens: 10_000_000, completionTokens: 0 });
  });
});

describe("usage in a stream of events", () => {
  const event = (usage: unknown) => `data: ${JSON.stringify({ type: "x", usage })}\n\n`;

  test("is that of the last event that tells of tokens", () => {
    const first = event({ input_tokens: 1, output_tokens: 2 });
    const last = event({ input_tokens: 3, output_tokens: 4 });
    expect(usageOfEvents(first + last)).toEqual({ promptTokens: 3, completionTokens: 4 });
    for (const nothing of [null, {}, "usage", { seconds: 5 }])
      expect(usageOfEvents(first + last + event(nothing))).toEqual({ promptTokens: 3, completionTokens: 4 });
    expect(usageOfEvents(first + event({ input_tokens: -1 }))).toBe("absurd");
    const escaped = last.replace("usage", "\\u0075sage").replace("input", "\\u0069nput");
    expect(usageOfEvents(event(null) + escaped)).toEqual({ promptTokens: 3, completionTokens: 4 });
    const text = event("").replace("usage", "\\\\u0075sage");
    for (const none of ["", event(null), text, '"usage":null', '"usage":{"input_tokens":1'])
      expect(usageOfEvents(none)).toBeNull();
  });
});
