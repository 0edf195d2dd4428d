import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { ApiError, type Content, type GenerateContentResponse, GoogleGenAI, type Part } from "@google/genai";
import { until } from "../../src/until.ts";
import { startGemini } from "../../src/vendors/gemini.ts";
import type { FakeVendor } from "../../src/vendors/model.ts";

const LONG = "Look at every detail. ".repeat(400);
const TOOLS = [{ functionDeclarations: [{ name: "look", description: LONG }] }];
const GO: Content[] = [{ role: "user", parts: [{ text: "Go." }] }];
const MODEL = "gemini-3.8-flash";

let now = 1_000_000;
let fake: FakeVendor;
let client: GoogleGenAI;
const connected = (apiKey = fake.apiKey) =>
  new GoogleGenAI({ apiKey, vertexai: false, httpOptions: { baseUrl: fake.url } });
beforeEach(() => {
  fake = startGemini({ nowMs: () => now });
  client = connected();
});
afterEach(() => fake.stop());

const config = { tools: TOOLS, thinkingConfig: { includeThoughts: true } };
const ask = (contents: Content[], rest: object = {}) =>
  client.models.generateContent({ model: MODEL, contents, config: { ...config, ...rest } });

const refusal = async (sent: Promise<unknown>): Promise<string> => {
  const error = await sent.then(
    () => null,
    (error) => error,
  );
  expect(error).toBeInstanceOf(ApiError);
  return `${error.status} ${error.message}`;
};

const answersOf = (parts: readonly Part[]): Content => ({
  role: "user",
  parts: parts.flatMap(({ functionCall }) =>
    functionCall
      ? [{ functionResponse: { id: functionCall.id, name: functionCall.name, response: { seen: true } } }]
      : [],
  ),
});

async function streamed(contents: Content[]) {
  const parts: Part[] = [];
  let last: GenerateContentResponse | undefined;
  for await (const chunk of await client.models.generateContentStream({ model: MODEL, contents, config })) {
    parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
    last = chunk;
  }
  return { parts, usage: last?.usageMetadata };
}

async function whole(contents: Content[]) {
  const { candidates, usageMetadata } = await ask(contents);
  return { parts: candidates?.[0]?.content?.parts ?? [], usage: usageMetadata };
}

/** One more exchange: the model's call and its answer. */
const continued = async () => {
  const { parts } = await whole(GO);
  return [...GO, { role: "model", parts }, answersOf(parts)];
};

describe("conversations", () => {
  for (const send of [streamed, whole])
    test(`ten turns with tools and thinking, ${send.name}`, async () => {
      let contents = GO;
      let nano = 0;
      for (let turn = 1; ; turn++) {
        const { parts, usage } = await send(contents);
        const { promptTokenCount = 0, cachedContentTokenCount: cached = 0 } = usage ?? {};
        const { candidatesTokenCount = 0, thoughtsTokenCount = 0 } = usage ?? {};
        const input = (promptTokenCount - cached) * 0.75 + cached * 0.075;
        nano += Math.round((input + (candidatesTokenCount + thoughtsTokenCount) * 3.75) * 1_000);
        if (!parts.some(({ functionCall }) => functionCall)) {
          expect(turn).toBe(10);
          expect(cached / promptTokenCount).toBeGreaterThan(0.9);
          break;
        }
        expect(parts.some(({ thought }) => thought)).toBe(true);
        contents = [...contents, { role: "model", parts }, answersOf(parts)];
      }
      expect(fake.bill.nanoUsd).toBe(nano);
    });

  test("a stream that is not SSE is an array", async () => {
    const answer = await fetch(
      `${fake.url}/v1beta/models/${MODEL}:streamGenerateContent?key=${fake.apiKey}`,
      {
        method: "POST",
        body: JSON.stringify({ contents: GO }),
      },
    );
    expect((await answer.json()).at(-1).candidates[0].finishReason).toBe("STOP");
  });

  test("an abort ends the bill", async () => {
    fake.stop();
    fake = startGemini({ paceMs: 5, script: () => ({ text: "word ".repeat(400) }) });
    client = connected();
    const abort = new AbortController();
    const stream = await client.models.generateContentStream({
      model: MODEL,
      contents: GO,
      config: { abortSignal: abort.signal },
    });
    await stream.next();
    abort.abort();
    await until("it is billed", () => fake.bill.lines.length === 1);
    expect(fake.bill.lines[0]?.output).toBeLessThan(100);
  });

  test("limits, listings, counts and vectors", async () => {
    const cut = await ask(GO, { maxOutputTokens: 2 });
    expect(cut.candidates?.[0]?.finishReason as string).toBe("MAX_TOKENS");
    const listed: string[] = [];
    for await (const { name } of await client.models.list()) listed.push(name ?? "");
    expect(listed).toContain(`models/${MODEL}`);
    expect((await client.models.get({ model: MODEL })).name).toBe(`models/${MODEL}`);
    expect((await client.models.countTokens({ model: MODEL, contents: GO })).totalTokens).toBeGreaterThan(5);
    const { embeddings } = await client.models.embedContent({ model: MODEL, contents: ["a", "b"] });
    expect(embeddings?.length).toBe(2);
  });

  test("the cache ends", async () => {
    await ask(GO);
    expect((await ask(GO)).usageMetadata?.cachedContentTokenCount).toBeGreaterThan(1_024);
    now += 6 * 60_000;
    expect((await ask(GO)).usageMetadata?.cachedContentTokenCount).toBeUndefined();
  });
});

describe("refusals", () => {
  const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const answer = await fetch(`${fake.url}/v1beta/models/${path}`, {
      method: "POST",
      headers: { "x-goog-api-key": fake.apiKey, ...headers },
      body: JSON.stringify(body),
    });
    return `${answer.status} ${(await answer.json()).error.message}`;
  };

  test("a wrong key, a bearer, no key", async () => {
    expect(
      await refusal(connected("AIza-other").models.generateContent({ model: MODEL, contents: GO })),
    ).toContain("API_KEY_INVALID");
    const list = (headers: Record<string, string>) =>
      fetch(`${fake.url}/v1beta/models`, { headers }).then(({ status }) => status);
    expect(await list({ authorization: `Bearer ${fake.apiKey}` })).toBe(401);
    expect(await list({})).toBe(403);
  });

  test("names, fields and roles that it does not know", async () => {
    expect(await refusal(client.models.generateContent({ model: "gemini-none", contents: GO }))).toContain(
      "404",
    );
    expect(await post(`models/${MODEL}:generateContent`, { contents: GO })).toStartWith("404");
    expect(await post(`${MODEL}:generateContent`, { contents: GO, messages: [] })).toContain(
      'Unknown name "messages"',
    );
    expect(
      await post(`${MODEL}:generateContent`, { contents: GO, generationConfig: { max_tokens: 5 } }),
    ).toContain('Unknown name "max_tokens"');
    expect(await refusal(ask([{ role: "assistant", parts: [{ text: "x" }] }]))).toContain("valid role");
    expect(await post(`${MODEL}:generateContent`, { contents: [] })).toContain("contents is not specified");
  });

  test("signatures that are missing, altered, misplaced or of another model", async () => {
    const contents = await continued();
    const parts = contents[1]?.parts as Part[];
    const swapped = (change: (part: Part) => Part) =>
      contents.map((content, at) => (at === 1 ? { ...content, parts: parts.map(change) } : content));
    const unsigned = ({ thoughtSignature, ...part }: Part) => part;
    expect((await ask(contents)).candidates?.length).toBe(1);
    expect(await refusal(ask(swapped(unsigned)))).toContain("missing a thought_signature");
    const altered = (part: Part) => (part.thoughtSignature ? { ...part, thoughtSignature: "AAAA" } : part);
    expect(await refusal(ask(swapped(altered)))).toContain("not valid");
    const other = { model: "gemini-2.5-pro", contents, config };
    expect(await refusal(client.models.generateContent(other))).toContain("not valid");
    const skipped = (part: Part) =>
      part.functionCall ? { ...part, thoughtSignature: "skip_thought_signature_validator" } : part;
    expect((await ask(swapped(skipped))).candidates?.length).toBe(1);
    // Turns before the newest message of the user are not asked for theirs.
    const later = [...swapped(unsigned), { role: "model", parts: [{ text: "Seen." }] }, ...GO];
    expect((await ask(later)).candidates?.length).toBe(1);
    const inside = swapped((part) =>
      part.functionCall ? { functionCall: { ...part.functionCall, thoughtSignature: "x" } as never } : part,
    );
    expect(await post(`${MODEL}:generateContent`, { contents: inside })).toContain(
      'Unknown name "thoughtSignature"',
    );
  });

  test("calls without answers and answers without calls", async () => {
    const [first, call, answer] = (await continued()) as [Content, Content, Content];
    expect(await refusal(ask([first, call, first]))).toContain("number of function response parts");
    expect(await refusal(ask([first, answer]))).toContain("immediately after a function call");
  });
});
