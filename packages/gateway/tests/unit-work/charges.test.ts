/** What images, sounds, rankings and moderations cost, and ways to have them for less. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { wave, worker } from "@model-gateway/testing/work.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { bootSpending, DEAR, type Spender, type SpendingBench } from "../support/spending.ts";

onEachDatabase("work with a price of its own", (fresh) => {
  let bench: SpendingBench;
  let who: Spender;
  let drop: () => Promise<void>;
  let count = 0;
  beforeAll(async () => {
    const database = await fresh();
    drop = database.drop;
    bench = await bootSpending({
      dataDir: database.options.dataDir,
      config: { databaseUrl: database.options.databaseUrl },
    });
    bench.upstream.answer(worker);
    who = await bench.spender("ann", { points: 1_000, drained: true });
  });
  afterAll(async () => {
    const { problems } = await verifyLedger(bench.app.rooms.usage.store.db);
    await bench.stop();
    await drop();
    expect(problems).toEqual([]);
  });

  /** What one request adds to the rows, in dollars. */
  async function costOf(
    send: () => Promise<Response>,
  ): Promise<{ status: number; usd: number; text: string }> {
    const before = await who.charged();
    const answer = await send();
    const text = Buffer.from(await answer.arrayBuffer()).toString("latin1");
    return { status: answer.status, usd: Math.round(((await who.charged()) - before) * 1e9) / 1e9, text };
  }
  const image = (more: Record<string, unknown>, path = "/v1/images/generations") =>
    costOf(() => who.post(path, { model: "test-painter", prompt: "a fjord", ...more }));
  const hear = (file: Buffer, key = who.key, more: Record<string, string> = {}) => {
    const form = new FormData();
    form.append("model", "test-ear");
    for (const [name, value] of Object.entries(more)) form.append(name, value);
    form.append("file", new Blob([new Uint8Array(file)]), "a");
    return fetch(`${bench.url}/v1/audio/transcriptions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: form,
    });
  };

  test("images: by number, size and quality; what is left open costs the most", async () => {
    for (const [usd, more] of [
      [0.002, { size: "1024x1024" }],
      [0.006, { size: "1024x1024", n: 3 }],
      [0.004, { size: "1024x1024", quality: "hd" }],
      [0.004, { size: " 1024X1024", quality: "HD" }],
      [0.016, { size: "1792x1024", n: 2 }],
      [0.008, {}],
      [0.008, { size: "auto" }],
      [0.008, { size: "9999x9999" }],
      [0.002, { size: "1024x1024", extra: { size: "1792x1024" } }],
      [0.008, { extra: { size: "1792x1024" } }],
    ] as const)
      expect([more, (await image(more)).usd]).toEqual([more, usd]);
  });

  test("images: what comes back is charged, fewer than were asked for or more, whatever an entry is called", async () => {
    const answered = (length: number, more: object = {}) =>
      bench.upstream.answer((_, reply) =>
        reply.json({
          created: 1,
          data: Array.from({ length }, () => ({ asset: "https://x/y.png" })),
          ...more,
        }),
      );
    answered(1);
    expect((await image({ size: "1024x1024", n: 4 })).usd).toBe(0.002);
    answered(50);
    const doubts = async () => (await bench.backends()).backends.health[0].implausible_usage?.count ?? 0;
    const before = await doubts();
    expect((await image({ size: "1024x1024", n: 4 })).usd).toBe(0.1);
    expect(await doubts()).toBe(before + 1);
    answered(1, { size: "1024x1024", quality: "low" });
    expect((await image({ size: "auto" })).usd).toBe(0.002);
    bench.upstream.answer(worker);
  });

  test("names with escapes in them are read as what they say", async () => {
    const answered = (json: string) =>
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "application/json" });
        await reply.write(json);
        reply.end();
      });
    answered('{"created":1,"data":[{"\\u0075rl":"https://x/y.png"}],"siz\\u0065":"1024x1024"}');
    expect((await image({ size: "auto", n: 4 })).usd).toBe(0.002);
    answered('{"text":"x","usage":{"type":"duration","second\\u0073":2}}');
    expect((await costOf(() => hear(wave(4)))).usd).toBe(0.002);
    answered('{"err\\u006fr":{"message":"busy"}}');
    expect(await costOf(() => hear(wave(4)))).toMatchObject({ status: 502, usd: 0 });
    bench.upstream.answer((_, reply) => reply.stream(['data: {"err\\u006fr":"out of memory"}\n\n']));
    expect((await image({ stream: true })).usd).toBe(0);
    bench.upstream.answer(worker);
  });

  test("counts that are no counts are refused, under every name", async () => {
    for (const more of [{ n: 0 }, { n: -1 }, { n: 1.5 }, { n: "2" }, { n: 1e9 }, { extra: { n: 0 } }]) {
      const { status, usd } = await image(more);
      expect([more, status, usd]).toEqual([more, 400, 0]);
    }
    const twice = `{"model":"test-painter","prompt":"x","size":"1024x1024","n":1,"n":2}`;
    expect((await costOf(() => who.post("/v1/images/generations", twice))).usd).toBe(0.004);
  });

  test("fields that are not known are refused, and the refusal lists the known ones; an operator can add some", async () => {
    const names = ["N", "Size", "num_images_per_prompt", "sampleCount", "batch_size", "width", "parameters"];
    for (const name of names)
      for (const more of [{ [name]: 10 }, { extra: { [name]: 10 } }]) {
        const { status, text } = await image(more);
        expect([name, status]).toEqual([name, 400]);
        expect(text).toMatch(name === "N" ? "the only spelling" : "known are model, prompt, n, size");
      }
    const url = bench.upstream.url;
    await bench.addBackend({
      name: "painter",
      type: "external",
      url,
      models: ["test-painter-steps"],
      fields: ["steps"],
    });
    const draw = (more: object) =>
      who.post("/v1/images/generations", {
        model: "test-painter-steps",
        provider: "painter",
        prompt: "x",
        ...more,
      });
    expect((await draw({ steps: 20 })).status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.json.steps).toBe(20);
    expect((await draw({ stepsize: 20 })).status).toBe(400);
    await bench.removeBackend("painter");
  });

  test("speech: by the characters that are said", async () => {
    const say = (body: object) =>
      costOf(() => who.post("/v1/audio/speech", { model: "test-voice", ...body }));
    expect((await say({ input: "a".repeat(1_000) })).usd).toBe(0.1);
    expect((await say({ input: "a", extra: { input: "b".repeat(1_000) } })).usd).toBe(0.0001);
    expect((await say({ input: "" })).status).toBe(400);
    expect((await say({ extra: { input: "b".repeat(10) } })).usd).toBe(0.001);
    expect((await say({ input: "a", speed: 0 })).status).toBe(400);
    // By the token, at 30 USD a million: slow speech lasts longer.
    const slow = { model: DEAR, input: "a".repeat(100) };
    const usual = await say(slow);
    expect((await say({ ...slow, speed: 0.25 })).usd).toBeGreaterThan(usual.usd + 3 * 200 * 30e-6);
  });

  test("sounds: by the seconds that the upstream reports, or by what the bytes can hold", async () => {
    expect((await costOf(() => hear(wave(4)))).usd).toBe(0.002);
    const silent = { response_format: "text" };
    const wav = await costOf(() => hear(wave(4), who.key, silent));
    expect(wav.usd).toBeCloseTo(0.004, 4);
    // A header that claims a tenth of a second changes nothing.
    const lying = await costOf(() => hear(wave(4, { claimed: 0.1 }), who.key, silent));
    expect(lying.usd).toBeCloseTo(0.004, 4);
    // Not known to be anything: a kilobyte is a second.
    expect((await costOf(() => hear(Buffer.alloc(3_000, 1), who.key, silent))).usd).toBe(0.003);
  });

  test("sounds: what the upstream reports is charged, also beyond what was held, which flags it", async () => {
    const doubts = async () => (await bench.backends()).backends.health[0].implausible_usage?.count ?? 0;
    const before = await doubts();
    bench.upstream.answer((_, reply) => reply.json({ text: "", usage: { type: "duration", seconds: 24 } }));
    // Three seconds at 8 kbit/s.
    expect((await costOf(() => hear(Buffer.alloc(3_000, 1)))).usd).toBe(0.024);
    expect(await doubts()).toBe(before + 1);
    bench.upstream.answer(worker);
  });

  test("sounds: what the last event of a stream reports is charged, however long its text is", async () => {
    const usdOf = async (usage: object, text = "good morning") => {
      const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
      const first = event({ type: "transcript.text.delta", delta: 'she said "usage":{"seconds":0}' });
      const done = event({ type: "transcript.text.done", text, usage });
      bench.upstream.answer((_, reply) => reply.stream([first, done]));
      return (await costOf(() => hear(wave(4), who.key, { stream: "true" }))).usd;
    };
    expect(await usdOf({ type: "duration", seconds: 2 })).toBe(0.002);
    expect(await usdOf({ type: "duration", seconds: "24" }, "word ".repeat(100_000))).toBe(0.024);
    for (const useless of [{ type: "duration", seconds: -1 }, { type: "tokens", input_tokens: 3 }, {}])
      expect(await usdOf(useless)).toBeCloseTo(0.004, 4);
    bench.upstream.answer(worker);
  });

  test("sounds: of several reports in a stream the largest counts", async () => {
    const reported = (seconds: number) => ({ usage: { type: "duration", seconds } });
    for (const events of [
      [reported(24), reported(1)],
      [{ ...reported(24), segments: [reported(1), reported(23)] }],
    ]) {
      bench.upstream.answer((_, reply) =>
        reply.stream(events.map((each) => `data: ${JSON.stringify(each)}\n\n`)),
      );
      expect((await costOf(() => hear(wave(4), who.key, { stream: "true" }))).usd).toBe(0.024);
    }
    bench.upstream.answer(worker);
  });

  test("sounds: who leaves after the report pays what it says", async () => {
    const done = { type: "transcript.text.done", text: "x", usage: { type: "duration", seconds: 24 } };
    bench.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(`data: ${JSON.stringify(done)}\n\n`);
      // Never comes to an end.
    });
    const before = await who.charged();
    const answer = await hear(wave(4), who.key, { stream: "true" });
    const reader = answer.body!.getReader();
    await reader.read();
    await reader.cancel();
    const spent = async () => (await who.charged()) - before;
    await until("it is charged", async () => (await spent()) > 0);
    expect(await spent()).toBeCloseTo(0.024, 9);
    bench.upstream.answer(worker);
  });

  test("sounds: the type of an answer is read in any case, and as a whole", async () => {
    const typed = async (type: string, body: string, more: Record<string, string>) => {
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": type });
        await reply.write(body);
        reply.end();
      });
      return costOf(() => hear(wave(4), who.key, more));
    };
    const whole = JSON.stringify({ text: "x", usage: { type: "duration", seconds: 2 } });
    const asText = { response_format: "text" };
    expect((await typed("Application/JSON; charset=utf-8", whole, asText)).usd).toBe(0.002);
    expect((await typed("application/json-seq", whole, asText)).usd).toBeCloseTo(0.004, 4);
    expect((await typed("Text/Event-Stream", `data: ${whole}\n\n`, { stream: "true" })).usd).toBe(0.002);
    expect((await typed("Text/HTML", "<p>busy</p>", {})).status).toBe(502);
    bench.upstream.answer(worker);
  });

  test("sounds: no bytes are free, whatever a file says of itself", async () => {
    const silent = { response_format: "text" };
    const usdOf = async (file: Buffer) => (await costOf(() => hear(file, who.key, silent))).usd;
    // Frames of MPEG 2, layer 3, 8 kbit/s and 22,050 Hz.
    const frame = Buffer.concat([Buffer.from([0xff, 0xf3, 0x10, 0xc0]), Buffer.alloc(22)]);
    const film = Buffer.concat(Array.from({ length: 400 }, () => frame));
    const honest = await usdOf(film);
    expect(honest).toBeCloseTo(0.0104, 3);
    for (const size of [
      [0xff, 0xff, 0xff, 0xff],
      [0x7f, 0x7f, 0x7f, 0x7f],
    ]) {
      const tag = Buffer.from([...Buffer.from("ID3"), 3, 0, 0, ...size]);
      expect(await usdOf(Buffer.concat([tag, film]))).toBeGreaterThanOrEqual(honest * 0.99);
    }
    // Formats in which a byte can be any length of sound: mu-law of 64 bits, and one that only its GUID names.
    for (const [format, bits] of [
      [7, 64],
      [0xfffe, 16],
    ] as const) {
      const file = wave(4);
      file.writeUInt16LE(format, 20);
      file.writeUInt16LE(bits, 34);
      file.writeUInt16LE(bits / 8, 32);
      file.writeUInt32LE((8_000 * bits) / 8, 28);
      expect(await usdOf(file)).toBeCloseTo(file.length / 1e6, 6);
    }
  });

  test("sounds: silence that takes next to no bytes is as long as a decoder makes it", async () => {
    const silent = { response_format: "text" };
    const usdOf = async (file: Buffer) => (await costOf(() => hear(file, who.key, silent))).usd;
    const crc8 = (bytes: number[]) =>
      bytes.reduce((sum, byte) => {
        let next = sum ^ byte;
        for (let bit = 0; bit < 8; bit++) next = next & 0x80 ? ((next << 1) ^ 0x07) & 0xff : next << 1;
        return next;
      }, 0);
    // 16-bit size, the rate of the beginning, a constant for all samples; the beginning claims no samples at all.
    const flacFrame = (number: number) => {
      const head = [0xff, 0xf8, 0x70, 0x08, number, 0x3e, 0x7f];
      return [...head, crc8(head), 0, 0, 0, 0, 0];
    };
    const info = [
      0x3e,
      0x80,
      0x3e,
      0x80,
      0,
      0,
      0,
      0,
      0,
      0,
      0x01,
      0xf4,
      0x00,
      0xf0,
      0,
      0,
      0,
      0,
      ...Array(16).fill(0),
    ];
    const frames = Array.from({ length: 100 }, (_, at) => flacFrame(at)).flat();
    const flac = Buffer.from([...Buffer.from("fLaC"), 0x80, 0, 0, 34, ...info, ...frames]);
    // A hundred frames of 16,000 samples at 8 kHz.
    expect(await usdOf(flac)).toBeCloseTo(0.2, 3);
    // The same in Ogg, and with the mark of another format.
    for (const before of ["OggS, and so on: \u007fFLAC", "OpusHead"])
      expect(await usdOf(Buffer.concat([Buffer.from(before), flac]))).toBeGreaterThanOrEqual(0.2);
    const page = (packets: number[][]) => [
      ...Buffer.from("OggS"),
      ...Array(22).fill(0),
      packets.length,
      ...packets.map(({ length }) => length),
      ...packets.flat(),
    ];
    // Packets of two frames of 60 ms in which nothing is.
    const opus = Buffer.from([
      ...page([[...Buffer.from("OpusHead"), 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]),
      ...Array.from({ length: 10 }, () => page(Array.from({ length: 250 }, () => [0x1b, 2]))).flat(),
    ]);
    expect(await usdOf(opus)).toBeCloseTo(0.3, 3);
    // 98 megabytes a second are no sound.
    const studio = wave(4);
    for (const [at, bits] of [
      [22, 32],
      [32, 256],
      [34, 64],
    ] as const)
      studio.writeUInt16LE(bits, at);
    studio.writeUInt32LE(384_000, 24);
    studio.writeUInt32LE(384_000 * 256, 28);
    expect(await usdOf(studio)).toBeCloseTo(studio.length / 1e6, 6);
  });

  test("sounds: what somebody says is no report, and no failure", async () => {
    const said = async (words: string, response_format: string) => {
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/plain; charset=utf-8" });
        await reply.write(words);
        reply.end();
      });
      const { usd, ...heard } = await costOf(() => hear(wave(4), who.key, { response_format }));
      return { ...heard, tenths: Math.round(usd * 1e4) };
    };
    for (const words of [
      '{"text":"x","usage":{"type":"duration","seconds":0}}',
      '{"text":"x","duration":0}',
      '{"error":{"message":"busy"}}',
    ])
      for (const format of ["text", "srt", "Text"])
        expect(await said(words, format)).toEqual({ status: 200, text: words, tenths: 40 });
    // Some servers send the bare words as events.
    for (const words of ['she said "usage": {"seconds": 0}', '{"text":"x","usage":{"seconds":0}}']) {
      bench.upstream.answer((_, reply) => reply.stream(["data: good morning\n\n", `data: ${words}\n\n`]));
      const more = { stream: "true", response_format: "text" };
      expect((await costOf(() => hear(wave(4), who.key, more))).usd).toBeCloseTo(0.004, 4);
    }
    bench.upstream.answer(worker);
  });

  test("sounds: one file is heard, so no more than one is sent", async () => {
    const form = new FormData();
    form.append("model", "test-ear");
    for (const seconds of [1, 60]) form.append("file", new Blob([new Uint8Array(wave(seconds))]), "a.wav");
    const before = bench.upstream.requests.length;
    const { status, usd, text } = await costOf(() =>
      fetch(`${bench.url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: { authorization: `Bearer ${who.key}` },
        body: form,
      }),
    );
    expect({ status, usd }).toEqual({ status: 400, usd: 0 });
    expect(text).toContain("file");
    expect(bench.upstream.requests.length).toBe(before);
  });

  test("images to be edited count wherever they stand: a file, a text of a form, or an address in JSON", async () => {
    const model = DEAR;
    const url = "https://example.com/a.png";
    const fields = { model, prompt: "x" };
    const asForm = (name: string, values: readonly (string | Blob)[]) => {
      const form = new FormData();
      for (const [key, value] of Object.entries(fields)) form.append(key, value);
      for (const value of values) form.append(name, value as string);
      return form;
    };
    const file = new Blob(["x"]);
    bench.upstream.answer(() => new Promise(() => {}));
    for (const [images, body] of [
      [1, asForm("image", [file])],
      [3, asForm("image[]", [file, file, file])],
      [3, asForm("image[]", [url, url, url])],
      [1, JSON.stringify({ ...fields, image: url })],
      [1, JSON.stringify({ ...fields, image: { url } })],
      [3, JSON.stringify({ ...fields, image: [url, url, url] })],
      [2, JSON.stringify({ ...fields, image: [url], mask: { url } })],
    ] as const) {
      const before = await who.charged();
      const count = bench.upstream.requests.length;
      const left = new AbortController();
      const asked = fetch(`${bench.url}/v1/images/edits`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${who.key}`,
          ...(typeof body === "string" && { "content-type": "application/json" }),
        },
        body,
        signal: left.signal,
      }).catch(() => null);
      await until("it is sent", () => bench.upstream.requests.length > count);
      left.abort();
      await asked;
      const spent = async () => (await who.charged()) - before;
      await until("it is charged", async () => (await spent()) > 0);
      // 6,240 tokens each, at 5 USD a million, besides what may have been made.
      const usd = (await spent()) - 6_240 * 30e-6;
      expect([images, Math.floor(usd / (6_240 * 5e-6))]).toEqual([images, images]);
    }
    bench.upstream.answer(worker);
  });

  test("sounds: reports that cannot be true are not believed", async () => {
    for (const seconds of [-1, 1e300, "many", {}, 1e6]) {
      bench.upstream.answer((_, reply) => reply.json({ text: "x", usage: { type: "duration", seconds } }));
      const { usd } = await costOf(() => hear(wave(4)));
      expect([seconds, Math.round(usd * 1e4)]).toEqual([seconds, 40]);
    }
    bench.upstream.answer(worker);
    const { backends } = await bench.backends();
    expect(backends.health[0].implausible_usage.count).toBeGreaterThan(0);
  });

  test("rankings and moderations: by the call, and many in one are several", async () => {
    const rank = (documents: unknown[]) =>
      costOf(() => who.post("/v1/rerank", { model: "test-ranker", query: "q", documents }));
    expect((await rank(["a", "b"])).usd).toBe(0.001);
    expect((await rank(Array.from({ length: 250 }, () => "a"))).usd).toBe(0.003);
    expect((await rank(["a".repeat(300_000)])).usd).toBe(0.002);
    for (const [units, usd] of [
      [7, 0.007],
      [1e12, 0.001],
      [10_000_000, 0.001],
      [-1, 0.001],
      ["many", 0.001],
    ] as const) {
      const meta = { billed_units: { search_units: units } };
      bench.upstream.answer((_, reply) => reply.json({ results: [{ index: 0, relevance_score: 1 }], meta }));
      expect([units, (await rank(["a"])).usd]).toEqual([units, usd]);
    }
    bench.upstream.answer(worker);
    const judge = (input: unknown) =>
      costOf(() => who.post("/v1/moderations", { model: "test-judge", input }));
    expect((await judge("a")).usd).toBe(0.0005);
    expect((await judge(["a", "b", "c"])).usd).toBe(0.0015);
  });

  test("what fails costs nothing", async () => {
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "busy" } }, 500));
    expect(await image({})).toMatchObject({ status: 502, usd: 0 });
    bench.upstream.answer((_, reply) => reply.json({ error: { message: "busy" } }));
    expect(await image({})).toMatchObject({ status: 502, usd: 0 });
    bench.upstream.answer(worker);
  });

  test("images in a stream: each that comes is charged, with its own usage, also beyond what was asked for", async () => {
    const done = (bytes: number) =>
      `data: ${JSON.stringify({ type: "image_generation.completed", b64_json: "A".repeat(bytes), usage: { input_tokens: 10, output_tokens: 4_000, total_tokens: 4_010 } })}\n\n`;
    const part = `data: ${JSON.stringify({ type: "image_generation.partial_image", b64_json: "A" })}\n\n`;
    const pieces = [part, done(20), done(2_000_000), done(40_000)];
    bench.upstream.answer((_, reply) => reply.stream(pieces));
    const size = "1024x1024";
    expect((await image({ stream: true, n: 2, size })).usd).toBe(0.006);
    // The price of a chat model is by the token.
    expect((await image({ stream: true, n: 2, model: DEAR })).usd).toBe((30 * 5 + 12_000 * 30) / 1e6);
    bench.upstream.answer(worker);
  });

  test("an error inside a stream is a failure: alone it costs nothing, after a part of the answer it does", async () => {
    const part = `event: image_generation.partial_image\ndata: ${JSON.stringify({ type: "image_generation.partial_image", b64_json: "A".repeat(40_000) })}\n\n`;
    const word = `data: ${JSON.stringify({ type: "transcript.text.delta", delta: "an error, she said", error: null })}\n\n`;
    const error = `event: error\ndata: ${JSON.stringify({ type: "error", error: { message: "out of memory" } })}\n\n`;
    const cut = (text: string) => [text.slice(0, 20), text.slice(20, 31), text.slice(31)];
    const kinds: [string[], number, string][] = [
      [cut(error), 0, "failed"],
      [cut(`data: {"error":"out of memory"}\n`), 0, "failed"],
      [[part, ...cut(error)], 0.008, "failed"],
      [[word, error], 0.008, "failed"],
      [[part, word], 0.008, "ok"],
    ];
    for (const [pieces, usd, outcome] of kinds) {
      // In between, so that the failures are not in a row.
      bench.upstream.answer(worker);
      await image({});
      bench.upstream.answer((_, reply) => reply.stream(pieces));
      expect(await image({ stream: true })).toMatchObject({ status: 200, usd, text: pieces.join("") });
      const { records } = await bench.rpc("requests.list", {}, who.token);
      expect([pieces.length, records[0]]).toMatchObject([pieces.length, { outcome }]);
      if (outcome === "failed") expect(records[0].message).toContain("out of memory");
      bench.upstream.answer(worker);
      expect((await image({ size: "1024x1024" })).status).toBe(200);
    }
  });

  test("30 at once get no more than two points pay", async () => {
    const poor = await bench.spender(`poor-${++count}`, { points: 2, drained: true });
    const before = bench.upstream.requests.length;
    const statuses = await Promise.all(
      Array.from({ length: 30 }, async () => {
        const answer = await poor.post("/v1/images/generations", {
          model: "test-painter",
          prompt: "x",
          size: "1792x1024",
        });
        await answer.text();
        return answer.status;
      }),
    );
    // Two points are two cents: two images of 0.8 cents.
    expect(bench.upstream.requests.length - before).toBe(2);
    expect(statuses.filter((status) => status === 200).length).toBe(2);
    expect(await poor.charged()).toBeCloseTo(0.016, 9);
    expect((await hear(wave(60), poor.key)).status).toBe(402);
  });

  test("a model that is priced by the token is charged by what is reported, or by what was counted", async () => {
    bench.upstream.answer((_, reply) =>
      reply.json({
        created: 1,
        data: [{ b64_json: "AAAA" }],
        usage: { input_tokens: 10, output_tokens: 1_000, total_tokens: 1_010 },
      }),
    );
    const priced = { model: "test-dear", prompt: "x" };
    expect(await costOf(() => who.post("/v1/images/generations", priced))).toMatchObject({
      status: 200,
      usd: 0.03005,
    });
    bench.upstream.answer(worker);
    const { usd } = await costOf(() => who.post("/v1/images/generations", priced));
    // A thousand tokens an image, and the prompt.
    expect(usd).toBeGreaterThan(0.03);
    expect(usd).toBeLessThan(0.031);
  });

  test("an administrator sets the price of such work, which is in force at once", async () => {
    const admin = await bench.signIn("ada");
    const set = (price: object) => bench.call("billing.prices.set", { model: "Homemade", ...price }, admin);
    for (const [field, price] of [
      ["input_usd", {}],
      ["output_usd", { input_usd: 1 }],
      ["per_image_usd", { per_image_usd: {} }],
      ["per_image_usd", { per_image_usd: -1 }],
      ["per_second_usd", { per_second_usd: 20_000 }],
    ] as const)
      expect((await set(price)).error.message).toContain(field);
    await set({ per_image_usd: { "1024x1024": 0.003, "hd/1024x1024": 0.007 }, per_second_usd: 0.001 });
    const draw = (more: object) =>
      costOf(() => who.post("/v1/images/generations", { model: "homemade", prompt: "x", ...more }));
    expect(await draw({ size: "1024x1024", n: 2 })).toMatchObject({ status: 200, usd: 0.006 });
    expect(await draw({ size: "1024x1024", quality: "hd" })).toMatchObject({ status: 200, usd: 0.007 });
    const listed = async () =>
      (await bench.rpc<{ model: string }[]>("billing.prices.list", {}, admin)).find(
        ({ model }) => model === "homemade",
      );
    expect(await listed()).toMatchObject({
      input_usd: null,
      per_image_usd: { "1024x1024": 0.003, "hd/1024x1024": 0.007 },
      per_second_usd: 0.001,
      unpriced: false,
      source: "own",
    });
    // What is set replaces what was, also what it leaves out.
    await set({ per_image_usd: 0.001 });
    expect(await draw({ n: 2 })).toMatchObject({ status: 200, usd: 0.002 });
    expect(await listed()).not.toHaveProperty("per_second_usd");
    await bench.rpc("billing.prices.remove", { model: "homemade" }, admin);
    expect(await listed()).toMatchObject({ unpriced: true, source: null });
  });

  test("records of the requests say what was charged", async () => {
    const { totals } = await bench.rpc("requests.stats", {}, who.token);
    expect(totals.cost_usd).toBeGreaterThan(0);
    expect(totals.cost_usd).toBeCloseTo(await who.charged(), 9);
  });

  test("a model without a price counts tokens, and takes no points", async () => {
    const other = await bench.spender("bea", { points: 5 });
    const answer = await other.post("/v1/images/generations", { model: "homemade", prompt: "x", n: 2 });
    expect(answer.status).toBe(200);
    expect((await other.rows())[0]).toMatchObject({ completion_tokens: 2_000, cost: null });
    expect((await other.wallet()).balance).toBe(5);
  });
});

describe("a group's rules", () => {
  test("hold for these, too", async () => {
    const bench = await bootSpending();
    bench.upstream.answer(worker);
    const { id: group_id } = await bench.rpc("group.create", { name: "g" }, bench.token);
    await bench.rpc("group.models.allow", { group_id, model_ids: ["m"] }, bench.token);
    await bench.rpc("group.update", { group_id, enforce_model_allowlist: true }, bench.token);
    const { key } = await bench.rpc("keys.create", { name: "g", group_id }, bench.token);
    const headers = { authorization: `Bearer ${key}` };
    const answer = await bench.post(
      "/v1/rerank",
      { model: "test-ranker", query: "q", documents: ["a"] },
      { headers },
    );
    expect(answer.status).toBe(403);
    await bench.stop();
  });
});
