import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { PNG, SOUND, wave, worker } from "@model-gateway/testing/work.ts";
import OpenAI, { toFile } from "openai";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
let client: OpenAI;
beforeAll(async () => {
  bench = await bootInference({ config: { uploadBytesMax: 1_000_000 } });
  client = new OpenAI({ apiKey: bench.key, baseURL: `${bench.url}/v1`, maxRetries: 0 });
});
afterAll(() => bench.stop());
beforeEach(() => bench.upstream.answer(worker));

const last = () => bench.upstream.requests.at(-1)!;

describe("the openai client", () => {
  test("makes images, and edits them", async () => {
    const { data, response } = await client.images
      .generate({ model: "m", prompt: "a fjord", n: 2 })
      .withResponse();
    expect(data.data!.map(({ b64_json }) => b64_json)).toEqual([
      PNG.toString("base64"),
      PNG.toString("base64"),
    ]);
    expect(response.headers.get("x-service-backend")).toBe("first");
    expect(last()).toMatchObject({
      path: "/v1/images/generations",
      json: { model: "m", prompt: "a fjord", n: 2 },
    });

    const edited = await client.images.edit({
      model: "m",
      prompt: "more snow",
      image: [await toFile(PNG, "a.png"), await toFile(PNG, "b.png")],
      n: 3,
    });
    expect(edited.data!.length).toBe(3);
    expect(last().path).toBe("/v1/images/edits");
    expect(last().bytes.indexOf(PNG)).toBeGreaterThan(0);
  });

  test("streams images, whose last event has the usage", async () => {
    const png = "A".repeat(200_000);
    bench.upstream.answer((_, reply) =>
      reply.stream([
        `event: image_generation.partial_image\ndata: {"type":"image_generation.partial_image","partial_image_index":0,"b64_json":"${png}"}\n\n`,
        `event: image_generation.completed\ndata: {"type":"image_generation.completed","b64_json":"${png}","usage":{"input_tokens":12,"output_tokens":345,"total_tokens":357}}\n\n`,
      ]),
    );
    const types: string[] = [];
    const stream = await client.images.generate({
      model: "m",
      prompt: "streamed",
      stream: true,
      partial_images: 1,
    });
    for await (const event of stream) types.push(event.type);
    expect(types).toEqual(["image_generation.partial_image", "image_generation.completed"]);
    const row = (await bench.usageRows())[0];
    expect(row).toMatchObject({ prompt_tokens: 12, completion_tokens: 345 });
  });

  test("speaks: the sound arrives byte by byte as it was made", async () => {
    const answer = await client.audio.speech.create({ model: "m", input: "good morning", voice: "alloy" });
    expect(answer.headers.get("content-type")).toBe("audio/mpeg");
    expect(Buffer.from(await answer.arrayBuffer()).equals(SOUND)).toBe(true);
    expect(last().headers.accept).toBe("*/*");
  });

  test("writes down what is said: JSON, text and a stream", async () => {
    const file = wave(2);
    const whole = await client.audio.transcriptions.create({ model: "m", file: await toFile(file, "a.wav") });
    expect(whole.text).toBe("good morning");
    expect(last().bytes.includes(file)).toBe(true);
    const text = await client.audio.transcriptions.create({
      model: "m",
      file: await toFile(file, "a.wav"),
      response_format: "text",
    });
    expect(text as unknown as string).toBe("good morning\n");
    const stream = await client.audio.transcriptions.create({
      model: "m",
      file: await toFile(file, "a.wav"),
      stream: true,
    });
    let heard = "";
    for await (const event of stream) if (event.type === "transcript.text.delta") heard += event.delta;
    expect(heard).toBe("good morning");
    expect((await bench.usageRows())[0]).toMatchObject({ prompt_tokens: 14, completion_tokens: 3 });
  });

  test("moderates", async () => {
    const { results } = await client.moderations.create({ model: "m", input: ["one", "two"] });
    expect(results.map(({ flagged }) => flagged)).toEqual([false, false]);
  });

  test("gets what the upstream refuses as it was said, with the backend that refused", async () => {
    bench.upstream.answer((_, reply) =>
      reply.json({ error: { message: "no such voice", type: "invalid_request_error", param: "voice" } }, 400),
    );
    const error = await client.audio.speech
      .create({ model: "m", input: "hi", voice: "nobody" })
      .catch((e) => e);
    expect(error).toBeInstanceOf(OpenAI.BadRequestError);
    expect(error.message).toContain("no such voice");
    expect(error.headers.get("x-service-backend")).toBe("first");
    expect(error.headers.get("x-service-attempts")).toBe("1");
  });
});

test("reranks, in Jina's and Cohere's form", async () => {
  const answer = await bench.post("/v1/rerank", {
    model: "m",
    query: "fjords",
    documents: ["a", { text: "b" }],
    top_n: 1,
  });
  expect(answer.status).toBe(200);
  const { results } = (await answer.json()) as { results: { index: number }[] };
  expect(results.map(({ index }) => index)).toEqual([0, 1]);
  expect(last()).toMatchObject({ path: "/v1/rerank", json: { top_n: 1 } });
  expect((await bench.usageRows())[0]).toMatchObject({ prompt_tokens: 21, completion_tokens: 0 });
});

describe("a form", () => {
  const send = (body: Buffer | FormData, headers: Record<string, string> = {}) =>
    fetch(`${bench.url}/v1/audio/transcriptions`, {
      method: "POST",
      headers: { authorization: `Bearer ${bench.key}`, ...headers },
      body: body instanceof FormData ? body : new Uint8Array(body),
    });
  const form = (fields: [string, string | Blob][]): FormData => {
    const data = new FormData();
    for (const [name, value] of fields) data.append(name, value);
    return data;
  };
  const sound = new Blob([new Uint8Array(wave(1))]);
  const raw = (parts: string[], boundary = "B") =>
    send(Buffer.from(`${parts.map((part) => `--${boundary}\r\n${part}\r\n`).join("")}--${boundary}--\r\n`), {
      "content-type": `multipart/form-data; boundary=${boundary}`,
    });
  const named = (name: string, value: string) =>
    `content-disposition: form-data; name="${name}"\r\n\r\n${value}`;
  const file = named("file", "x").replace('"file"', '"file"; filename="a.mp3"');

  test("goes on with the model's own name behind an alias, and without the gateway's own fields", async () => {
    await bench.admin("POST", "/aliases", { alias: "scribe", target: "m" });
    expect(
      (
        await send(
          form([
            ["provider", "first"],
            ["model", "scribe"],
            ["file", sound],
          ]),
        )
      ).status,
    ).toBe(200);
    expect(last().text).toContain('name="model"\r\n\r\nm\r\n');
    expect(last().text).not.toContain("provider");
    expect(last().bytes.includes(wave(1))).toBe(true);
  });

  test("is refused where servers would read it differently", async () => {
    const refused: [string, Promise<Response>][] = [
      ["twice", raw([named("model", "m"), named("model", "dear"), file])],
      ["another spelling", raw([named("Model", "m"), file])],
      ["a list", raw([named("model[]", "m"), file])],
      ["a file", raw([named("model", "m").replace('"model"', '"model"; filename="m"'), file])],
      ["no name", raw(["content-type: text/plain\r\n\r\nm", file])],
      ["encoded", raw([`content-transfer-encoding: base64\r\n${named("model", "bQ==")}`, file])],
      ["a header twice", raw([`content-disposition: form-data; name="n"\r\n${named("model", "m")}`, file])],
      ["a boundary inside a line", raw([named("model", "m"), `${file}\n--B\r\n${named("n", "9")}`])],
      [
        "no end",
        send(Buffer.from(`--B\r\n${named("model", "m")}`), {
          "content-type": "multipart/form-data; boundary=B",
        }),
      ],
      [
        "two boundaries",
        send(Buffer.from("--B--"), { "content-type": "multipart/form-data; boundary=B; boundary=C" }),
      ],
      ["other models", raw([named("model", "m"), named("fallbacks", "dear"), file])],
    ];
    const before = bench.upstream.requests.length;
    for (const [what, answer] of refused) expect([what, (await answer).status]).toEqual([what, 400]);
    expect(bench.upstream.requests.length).toBe(before);
  });

  test("names what is missing, and how large it may be", async () => {
    expect(await (await send(form([["model", "m"]]))).text()).toContain("`file` is required");
    expect(await (await send(form([["file", sound]]))).text()).toContain("`model` is required");
    expect((await bench.post("/v1/audio/transcriptions", { model: "m" })).status).toBe(415);
    const large = new Blob([new Uint8Array(1_000_001)]);
    expect(
      (
        await send(
          form([
            ["model", "m"],
            ["file", large],
          ]),
        )
      ).status,
    ).toBe(413);
  });
});

test("a client that leaves stops the upstream, and the sound is charged", async () => {
  bench.upstream.answer(async (_, reply) => {
    reply.head(200, { "content-type": "audio/mpeg" });
    await reply.write("some");
    await new Promise(() => {});
  });
  const leaving = new AbortController();
  const answer = await bench.post(
    "/v1/audio/speech",
    { model: "m", input: "leave me" },
    { signal: leaving.signal },
  );
  await answer.body!.getReader().read();
  leaving.abort();
  await until("the upstream was stopped", () => last().closedAtMs !== null);
  await until("it was settled", async () => {
    const [row] = await bench.usageRows();
    return row.completion_tokens === "leave me".length * 2;
  });
});

test("a sound that breaks off is cut off for the client, too, and an error in JSON is an error", async () => {
  bench.upstream.answer(async (_, reply) => {
    reply.head(200, { "content-type": "audio/mpeg" });
    await reply.write("some");
    reply.reset();
  });
  const cut = await bench.post("/v1/audio/speech", { model: "m", input: "hi" });
  await expect(cut.arrayBuffer()).rejects.toThrow();
  bench.upstream.answer((_, reply) => reply.json({ error: { message: "out of memory" } }));
  expect((await bench.post("/v1/audio/speech", { model: "m", input: "hi" })).status).toBe(502);
});

test("what a backend is not registered for goes to one that is", async () => {
  await bench.addBackend({
    name: "texts",
    type: "external",
    url: bench.upstream.url,
    models: ["only-texts"],
    capabilities: ["chat"],
  });
  const answer = await bench.post("/v1/rerank", { model: "only-texts", query: "q", documents: ["a"] });
  expect(answer.status).toBe(500);
  expect(await answer.text()).toContain("does not support reranking");
});
