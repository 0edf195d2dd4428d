import { afterAll, beforeAll, expect, test } from "bun:test";
import { ApiError, GoogleGenAI } from "@google/genai";
import { completion } from "@model-gateway/testing/upstream.ts";
import { startGemini } from "@model-gateway/testing/vendors/gemini.ts";
import type { FakeVendor } from "@model-gateway/testing/vendors/model.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

/** Gemini's own API by Google's client: for Google's models as bytes, for others as a chat. */
let bench: InferenceBench;
let fake: FakeVendor;
let client: GoogleGenAI;
const NATIVE = "gemini-3.8-flash";
const connected = (apiKey: string) =>
  new GoogleGenAI({ apiKey, vertexai: false, httpOptions: { baseUrl: bench.url } });
beforeAll(async () => {
  bench = await bootInference();
  fake = startGemini();
  const { url, apiKey: api_key } = fake;
  await bench.addBackend({ type: "external", url, api_key, name: "google", dialects: ["gemini"] });
  client = connected(bench.key);
});
afterAll(async () => {
  fake.stop();
  await bench.stop();
});

const contents = [{ role: "user", parts: [{ text: "Grüße 🎉" }] }];
const goog = { authorization: "", "x-goog-api-key": "" };

for (const method of ["generateContent", "streamGenerateContent?alt=sse"])
  test(`${method} passes byte for byte`, async () => {
    const body = JSON.stringify(
      { contents, generationConfig: { maxOutputTokens: 900 }, labels: { a: "b" } },
      null,
      2,
    );
    const answer = await bench.post(`/v1beta/models/${NATIVE}:${method}`, body, {
      headers: { authorization: "", "x-goog-api-key": bench.key },
    });
    const text = await answer.text();
    expect(answer.status).toBe(200);
    expect(fake.requests.at(-1)!.text).toBe(body);
    expect(text).toBe(fake.answers.at(-1)!);
    expect(fake.requests.at(-1)!.path).not.toContain("key=");
    expect(fake.requests.at(-1)!.headers["x-goog-api-key"]).toBe(fake.apiKey);
  });

test("the key may stand in the query, and a wrong one is refused in Google's form", async () => {
  const path = `/v1beta/models/${NATIVE}:generateContent`;
  const asked = await bench.post(`${path}?key=${bench.key}`, { contents }, { headers: goog });
  expect(asked.status).toBe(200);
  const error = await connected("service-wrong")
    .models.generateContent({ model: NATIVE, contents })
    .catch((e) => e);
  expect(error).toBeInstanceOf(ApiError);
  expect(error.status).toBe(401);
  expect(error.message).toContain("UNAUTHENTICATED");
});

test("the operator's key that Google does not know is the operator's: others are used, and no client is told of it", async () => {
  const { url, apiKey } = fake;
  const add = (api_key: string) =>
    bench.addBackend({
      type: "external",
      url,
      api_key,
      name: "google",
      models: [NATIVE],
      dialects: ["gemini"],
    });
  const ask = () => bench.post(`/v1beta/models/${NATIVE}:generateContent`, { contents });
  await add(`wrong-key-1111, ${apiKey}`);
  for (let i = 0; i < 4; i++) expect((await ask()).status).toBe(200);
  const { backends } = await bench.rpc("backends.list", {}, bench.token);
  const shown = backends.find(({ name }: { name: string }) => name === "google");
  expect(shown.refused_keys).toMatchObject([{ ends_with: "1111" }]);
  fake.apiKey = "changed";
  expect((await ask()).status).toBe(502);
  fake.apiKey = apiKey;
  await add(apiKey);
});

test("another vendor's model answers in the same form: whole, as events, as an array, with tools", async () => {
  bench.upstream.answer((_, reply) => reply.json(completion("Hello!")));
  const whole = await client.models.generateContent({ model: "m", contents: "Hi" });
  expect(whole.text).toBe("Hello!");
  expect(whole.usageMetadata).toMatchObject({
    promptTokenCount: 9,
    candidatesTokenCount: 4,
    totalTokenCount: 13,
  });
  let text = "";
  for await (const { text: piece } of await client.models.generateContentStream({
    model: "m",
    contents: "Hi",
  }))
    text += piece ?? "";
  expect(text).toBe("Hello!");
  const array = await bench.post("/v1beta/models/m:streamGenerateContent", { contents });
  const chunks = (await array.json()) as { candidates: { finishReason?: string }[] }[];
  expect(array.headers.get("content-type")).toContain("application/json");
  expect(chunks.at(-1)!.candidates[0]!.finishReason).toBe("STOP");
});

test("what only Google's servers have is refused by name for other models", async () => {
  const refused = async (fields: object) => {
    const answer = await bench.post("/v1beta/models/m:generateContent", { contents, ...fields });
    expect(answer.status).toBe(400);
    return ((await answer.json()) as { error: { status: string; message: string } }).error.message;
  };
  expect(await refused({ tools: [{ googleSearch: {} }] })).toContain("tools.0.googleSearch");
  expect(await refused({ cachedContent: "cachedContents/1" })).toContain("cachedContent");
  expect(await refused({ generationConfig: { candidateCount: 2 } })).toContain("candidateCount");
});

test("a limit has one spelling and one place, and no cache is named, also where the request passes as it is", async () => {
  for (const fields of [
    { generationConfig: { max_output_tokens: 1e6 } },
    { generationConfig: { MaxOutputTokens: 1e6 } },
    { generation_config: { maxOutputTokens: 1e6 } },
    { generationConfig: { maxOutputTokens: -1 } },
    { generationConfig: [{ maxOutputTokens: 1e6 }] },
    { model: "models/another" },
    { serviceTier: "PRIORITY" },
    { cachedContent: "cachedContents/1" },
    { cached_content: "cachedContents/1" },
  ]) {
    const before = fake.requests.length;
    const answer = await bench.post(`/v1beta/models/${NATIVE}:generateContent`, { contents, ...fields });
    expect(answer.status).toBe(400);
    expect(fake.requests).toHaveLength(before);
  }
});

test("models, tokens and vectors", async () => {
  const listed: string[] = [];
  for await (const { name } of await client.models.list()) listed.push(name ?? "");
  expect(listed).toContain(`models/${NATIVE}`);
  expect(listed).not.toContain(`models/models/${NATIVE}`);
  // Advertised, but served by nobody here; this listing could not say so.
  expect(listed).not.toContain("models/kimi-k3");
  expect((await client.models.get({ model: NATIVE })).name).toBe(`models/${NATIVE}`);
  const { totalTokens } = await client.models.countTokens({ model: NATIVE, contents: "How many are these?" });
  expect(totalTokens).toBeGreaterThan(3);
  const { embeddings } = await client.models.embedContent({ model: NATIVE, contents: ["a", "b"] });
  expect(embeddings?.map(({ values }) => values?.length)).toEqual([3, 3]);
});

test("leaving a stream stops the upstream, and what was delivered is charged", async () => {
  fake.script = () => ({ text: "word ".repeat(5_000) });
  const leaving = new AbortController();
  const answer = await bench.post(
    `/v1beta/models/${NATIVE}:streamGenerateContent?alt=sse`,
    { contents },
    { signal: leaving.signal },
  );
  await answer.body!.getReader().read();
  leaving.abort();
  const [row] = await bench.usageRows();
  expect(row).toMatchObject({ model: NATIVE });
});
