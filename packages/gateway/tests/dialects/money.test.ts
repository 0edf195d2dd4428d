import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chunk,
  completion,
  DONE,
  type FakeUpstream,
  startUpstream,
  type UpstreamHandler,
  usageChunk,
} from "@model-gateway/testing/upstream.ts";
import { bootSpending, costUsd, DEAR, type Spender, type SpendingBench } from "../support/spending.ts";

/** Requests that pass as they are: what is served is paid, whatever the upstream and the client do. */
const WORDS = "a word of it and another ";
const POINTS = 2;

interface Voice {
  dialect: string;
  path: string;
  body: Record<string, unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies freely
  limitOf: (sent: any) => unknown;
  /** The events of an answer: how it begins, one piece of it, how it ends with this usage. */
  begin: string;
  piece: string;
  end(prompt: unknown, completion: unknown): string;
  /** What the gateway's own ending must have in it. */
  cut: RegExp;
  /** A tool that the vendor runs at most four times, other places where it may stand, and what shows one call of it. */
  tool: {
    asked: Record<string, unknown>;
    elsewhere: Record<string, unknown>[];
    name: string;
    called: string;
  };
  /** Requests that name what the vendor keeps; the first needs nothing but the operator's leave. */
  kept: [Record<string, unknown>, ...Record<string, unknown>[]];
  /** A count that is added to that of the prompt. */
  addend?: string;
  /** What of the end of an answer says that the vendor's slow tier gave it; absent where it has none. */
  flex?: [before: string, after: string];
}

const event = (data: { type?: string; [field: string]: unknown }) =>
  `${data.type ? `event: ${data.type}\n` : ""}data: ${JSON.stringify(data)}\n\n`;
const question = [{ role: "user", content: "hi there" }];
const WEB_SEARCH = { type: "web_search_20250305", name: "web_search", max_uses: 4 };
const ADDITION = { type: "tool_addition", tool: { type: "tool_definition", definition: WEB_SEARCH } };
const said = (...content: object[]) => ({ messages: [...question, { role: "system", content }] });
const items = (...more: object[]) => ({ input: [...question, ...more] });

const VOICES: Voice[] = [
  {
    dialect: "messages",
    path: "/v1/messages",
    body: { model: DEAR, max_tokens: 20_000, messages: question, stream: true },
    limitOf: ({ max_tokens }) => max_tokens,
    begin:
      event({
        type: "message_start",
        message: { id: "m", content: [], usage: { input_tokens: 20, output_tokens: 1 } },
      }) + event({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
    piece: event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: WORDS } }),
    end: (input_tokens, output_tokens) =>
      event({ type: "content_block_stop", index: 0 }) +
      event({
        type: "message_delta",
        delta: { stop_reason: "end_turn" },
        usage: { input_tokens, output_tokens },
      }) +
      event({ type: "message_stop" }),
    cut: /"content_block_stop","index":0.*"stop_reason":"max_tokens".*event: message_stop/s,
    tool: {
      asked: { tools: [WEB_SEARCH] },
      elsewhere: [said(ADDITION), said({ type: "compaction", content: "so far", tool_changes: [ADDITION] })],
      name: "web_search",
      called: event({
        type: "content_block_start",
        index: 1,
        content_block: { type: "server_tool_use", id: "s", name: "web_search", input: {} },
      }),
    },
    kept: [
      { messages: [{ role: "user", content: [{ type: "image", source: { type: "file", file_id: "f" } }] }] },
      { thread: { type: "continue", previous_message_id: "msg_of_another" } },
    ],
    addend: "cache_read_input_tokens",
  },
  {
    dialect: "responses",
    path: "/v1/responses",
    body: { model: DEAR, max_output_tokens: 20_000, input: "hi there", store: false, stream: true },
    limitOf: ({ max_output_tokens }) => max_output_tokens,
    begin:
      event({ type: "response.created", sequence_number: 0, response: { id: "r", output: [] } }) +
      event({
        type: "response.output_item.added",
        sequence_number: 1,
        output_index: 0,
        item: { id: "i", type: "message" },
      }),
    piece: event({ type: "response.output_text.delta", sequence_number: 2, item_id: "i", delta: WORDS }),
    end: (input_tokens, output_tokens) =>
      event({
        type: "response.completed",
        response: { id: "r", status: "completed", output: [], usage: { input_tokens, output_tokens } },
      }),
    cut: /event: response\.incomplete.*"reason":"max_output_tokens"/s,
    flex: ['"status":"completed"', '"status":"completed","service_tier":"flex"'],
    tool: {
      asked: { tools: [{ type: "file_search" }], max_tool_calls: 4 },
      elsewhere: [
        items({ type: "additional_tools", role: "developer", tools: [{ type: "file_search" }] }),
        items({
          type: "tool_search_output",
          tools: [{ type: "namespace", tools: [{ type: "file_search" }] }],
        }),
      ],
      name: "file_search",
      called: event({ type: "response.output_item.added", item: { id: "f", type: "file_search_call" } }),
    },
    kept: [
      items({ role: "user", content: [{ type: "input_file", file_id: "f" }] }),
      { tools: [{ type: "code_interpreter", container: { type: "auto", file_ids: ["f"] } }] },
      items({ type: "additional_tools", tools: [{ type: "file_search", vector_store_ids: ["v"] }] }),
    ],
  },
  {
    dialect: "gemini",
    path: `/v1beta/models/${DEAR}:streamGenerateContent?alt=sse`,
    body: {
      contents: [{ role: "user", parts: [{ text: "hi there" }] }],
      generationConfig: { maxOutputTokens: 20_000 },
    },
    limitOf: ({ generationConfig }) => generationConfig.maxOutputTokens,
    begin: "",
    piece: event({ candidates: [{ content: { role: "model", parts: [{ text: WORDS }] } }] }),
    end: (promptTokenCount, candidatesTokenCount) =>
      event({
        candidates: [{ content: { parts: [] }, finishReason: "STOP" }],
        usageMetadata: { promptTokenCount, candidatesTokenCount },
      }),
    cut: /"finishReason":"MAX_TOKENS"/,
    tool: {
      asked: { tools: [{ googleSearch: {} }] },
      elsewhere: [],
      name: "googleSearch",
      called: event({
        candidates: [{ content: { parts: [] }, groundingMetadata: { webSearchQueries: ["q"] } }],
      }),
    },
    kept: [
      { cachedContent: "cachedContents/1" },
      { tools: [{ fileSearch: { fileSearchStoreNames: ["fileSearchStores/1"] } }] },
      ...["files/1", "https://x.test/v1beta/files/1", "gs://operators/plan.pdf"].map((fileUri) => ({
        contents: [{ role: "user", parts: [{ fileData: { mimeType: "application/pdf", fileUri } }] }],
      })),
    ],
    addend: "toolUsePromptTokenCount",
    flex: ['"usageMetadata":{', '"usageMetadata":{"serviceTier":"flex",'],
  },
];

let bench: SpendingBench;
const upstreams = new Map<string, FakeUpstream>();
beforeAll(async () => {
  bench = await bootSpending();
  await bench.removeBackend("first");
});
afterAll(async () => {
  for (const upstream of upstreams.values()) upstream.stop();
  await bench.stop();
});

let count = 0;
describe.each(VOICES)("$dialect", (voice) => {
  let upstream: FakeUpstream;
  let rich: Spender;
  beforeAll(async () => {
    rich = await bench.spender(`rich${voice.dialect}`, { points: 100_000 });
    for (const name of upstreams.keys()) await bench.removeBackend(name);
    upstream = startUpstream({ models: [DEAR] });
    upstreams.set(voice.dialect, upstream);
    const { dialect: name } = voice;
    await bench.addBackend({ type: "external", url: upstream.url, name, models: [DEAR], dialects: [name] });
  });
  const spender = () => bench.spender(`who${voice.dialect}${count++}`, { points: POINTS, drained: true });
  const streaming =
    (
      write: (send: (text: string) => Promise<void>, isOpen: () => boolean) => Promise<void>,
      type = "text/event-stream",
    ): UpstreamHandler =>
    async (request, reply) => {
      reply.head(200, { "content-type": type });
      if (voice.begin) await reply.write(voice.begin);
      await write(
        (text) => reply.write(text),
        () => request.closedAtMs === null,
      );
      await reply.end();
    };

  test("a stream is one by its type in any case", async () => {
    const type = "Text/Event-Stream;charset=UTF-8";
    upstream.answer(streaming((send) => send(voice.piece + voice.end(20, 10)), type));
    expect((await rich.post(voice.path, voice.body)).status).toBe(200);
  });

  test("the limit is lowered in its own field, and in others that may be obeyed, to what can be paid", async () => {
    upstream.answer(streaming((send) => send(voice.piece + voice.end(20, 10))));
    const who = await spender();
    const answer = await who.post(voice.path, { ...voice.body, max_new_tokens: 1_000_000 });
    await answer.text();
    const limit = Number(answer.headers.get("x-service-max-tokens"));
    expect(limit).toBeGreaterThan(550);
    expect(limit).toBeLessThan(667);
    const { json } = upstream.requests.at(-1)!;
    expect(voice.limitOf(json)).toBe(limit);
    expect(json.max_new_tokens).toBe(limit);
    const [row] = await who.rows();
    expect(row).toMatchObject({ prompt_tokens: 20, completion_tokens: 10 });
  });

  test("a stream that ignores its limit ends in the dialect's own way when nothing is left to pay with", async () => {
    let sent = 0;
    upstream.answer(
      streaming(async (send, isOpen) => {
        while (isOpen() && sent < 20_000) {
          sent++;
          await send(voice.piece);
          if (sent % 20 === 0) await Bun.sleep(1);
        }
      }),
    );
    const who = await spender();
    const text = await (await who.post(voice.path, voice.body)).text();
    expect(text).toMatch(voice.cut);
    expect(sent).toBeLessThan(20_000);
    const delivered = text.split(WORDS).length - 1;
    const [row] = await who.rows();
    // A piece has six words: a token each, at least.
    expect(row.completion_tokens).toBeGreaterThanOrEqual(Math.min(delivered * 5, 600));
    const { balance, debt } = await who.wallet();
    expect(balance).toBeGreaterThanOrEqual(0);
    expect(await who.charged()).toBeCloseTo(costUsd(row), 6);
    expect(debt * 0.01).toBeLessThan(0.02);
  });

  /** The row of a request whose answer is this, in the dialect itself or as a chat. */
  const rowOf = async (answer: string, isChat: boolean) => {
    upstream.answer(streaming((send) => send(answer)));
    const answered = await (isChat ? rich.chat({ stream: true }) : rich.post(voice.path, voice.body));
    const text = await answered.text();
    const [row] = await rich.rows();
    return { ...row, delivered: text.split(WORDS).length - 1 };
  };
  const pieces = voice.piece.repeat(20);
  const reported = (prompt: unknown, completion: unknown) =>
    voice.end(prompt, completion).replace(/event: message_stop.*/s, "");

  describe.each([
    ["as it is", false],
    ["as a chat", true],
  ])("%s", (_, isChat) => {
    test.each([
      ["absurd", -5, 1e12],
      ["absent", undefined, undefined],
      ["without the answer's", 20, null],
      ["without the prompt's", null, 150],
    ])("usage that is %s: the count is charged", async (_, prompt, completion) => {
      const row = await rowOf(pieces + voice.end(prompt, completion), isChat);
      expect(row.completion_tokens).toBeGreaterThanOrEqual(100);
      expect(row.completion_tokens).toBeLessThan(400);
      expect(row.prompt_tokens).toBeGreaterThan(0);
    });

    test("of several reports the largest counts", async () => {
      const row = await rowOf(pieces + reported(500, 300) + voice.end(1, 1), isChat);
      expect(row).toMatchObject({ prompt_tokens: 500, completion_tokens: 300 });
    });

    test("an answer of the vendor's slow tier costs what one in a batch does", async () => {
      const [before, after] = voice.flex ?? ['"usage":{', '"usage":{"service_tier":"flex",'];
      const row = await rowOf(pieces + voice.end(500, 300).replace(before, after), isChat);
      expect(row.cost).toBeCloseTo(costUsd(row) * (voice.flex ? 0.5 : 1), 9);
    });

    test("a stream that ends without its last event keeps its figures", async () => {
      const row = await rowOf(pieces + reported(500, 300), isChat);
      expect(row).toMatchObject({ prompt_tokens: 500, completion_tokens: 300 });
    });

    test("what comes after a report is counted, or not passed on", async () => {
      const row = await rowOf(reported(20, 1) + pieces + voice.end(null, null), isChat);
      expect(row.completion_tokens).toBeGreaterThanOrEqual(row.delivered * 5);
    });

    test("text that comes only with the end of it is counted, or not passed on", async () => {
      const item = { type: "message", content: [{ type: "output_text", text: WORDS.repeat(20) }] };
      const end = voice.end(null, null).replace('"output":[]', `"output":[${JSON.stringify(item)}]`);
      const row = await rowOf(end, isChat);
      expect(row.completion_tokens).toBeGreaterThanOrEqual(row.delivered * 5);
    });

    test("a part below zero makes nothing cheaper", async () => {
      const text = voice.end(500, 300);
      const row = await rowOf(pieces + text.replace(/(?="\w+":500)/, `"${voice.addend}":-499,`), isChat);
      expect(row.completion_tokens).toBeGreaterThanOrEqual(100);
      expect(row.prompt_tokens).toBeGreaterThan(1);
    });
  });

  test.each(["service_tier", "serviceTier", "speed", "inference_geo"])(
    "`%s`: what would cost more than the model's price is refused by its name",
    async (name) => {
      const before = upstream.requests.length;
      for (const field of [{ [name]: "fast" }, { extra_body: { [name]: "fast" } }]) {
        const answer = await rich.post(voice.path, { ...voice.body, ...field });
        expect(answer.status).toBe(400);
        expect(await answer.text()).toContain(name);
      }
      expect(upstream.requests).toHaveLength(before);
    },
  );

  test("a vendor's tool is refused by its name until it has a price; then its calls are held and charged", async () => {
    const { asked, elsewhere, name, called } = voice.tool;
    const body = { ...voice.body, ...asked };
    upstream.answer(streaming((send) => send(voice.piece + called + called + voice.end(500, 300))));
    const bodies = [asked, ...elsewhere].map((fields) => JSON.stringify({ ...voice.body, ...fields }));
    for (const text of bodies.flatMap((json) => [
      json,
      json.replaceAll("tool_addition", "tool_\\u0061ddition"),
    ])) {
      const refused = await rich.post(voice.path, text);
      expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining(`(${name})`)]);
    }
    const backend = { name: voice.dialect, tool_prices: { [name]: 0.01 } };
    await bench.rpc("backends.update", backend, bench.token);
    const answer = await rich.post(voice.path, body);
    expect(await answer.text()).toContain(WORDS);
    const [row] = await rich.rows();
    expect(row.cost).toBeCloseTo(costUsd(row) + 0.02, 9);
    // Two cents do not pay for four calls.
    expect((await (await spender()).post(voice.path, body)).status).toBe(402);
    await bench.rpc("backends.update", { ...backend, tool_prices: null }, bench.token);
  });

  test("what a vendor keeps under an id is refused until the operator shares it", async () => {
    upstream.answer(streaming((send) => send(voice.piece + voice.end(500, 300))));
    for (const fields of voice.kept) {
      const refused = await rich.post(voice.path, { ...voice.body, ...fields });
      expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining("shared_files")]);
    }
    const image_url = { url: "gs://operators/plan.png" };
    const content = [{ type: "image_url", image_url }];
    const chat = await rich.chat({ messages: [{ role: "user", content }] });
    expect([chat.status, await chat.text()]).toEqual([400, expect.stringContaining("shared_files")]);
    // Parsers keep the last of repeated members; some vendors take all of them.
    const hidden = voice.kept.flatMap((fields) => {
      const json = JSON.stringify(fields);
      const twice = json.replace(/"(content|parts)":(\[.*?\])(?=\}\])/, '$&,"$1":[{"text":"hi"}]');
      const others = JSON.stringify({ ...voice.body, ...fields, [Object.keys(fields)[0]!]: undefined });
      return twice === json ? [] : [`${others.slice(0, -1)},${twice.slice(1)}`];
    });
    expect(hidden.length).toBeGreaterThan(0);
    for (const json of hidden) {
      const refused = await rich.post(voice.path, json);
      expect([refused.status, await refused.text()]).toEqual([
        400,
        expect.stringContaining("two members of one name"),
      ]);
    }
    const body = { ...voice.body, ...voice.kept[0] };
    await bench.rpc("backends.update", { name: voice.dialect, shared_files: true }, bench.token);
    expect((await rich.post(voice.path, body)).status).toBe(200);
    await bench.rpc("backends.update", { name: voice.dialect, shared_files: null }, bench.token);
  });

  test("leaving after any event costs at least what was delivered", async () => {
    for (const pieces of [0, 1, 7]) {
      upstream.answer(
        streaming(async (send, isOpen) => {
          await send(voice.piece.repeat(pieces) || ": wait\n\n");
          while (isOpen()) await Bun.sleep(5);
        }),
      );
      const who = await spender();
      const leaving = new AbortController();
      const answer = who.post(voice.path, voice.body, { signal: leaving.signal });
      await (pieces > 0 || voice.begin ? (await answer).body!.getReader().read() : Bun.sleep(100));
      leaving.abort();
      await answer.catch(() => {});
      const rows = await who.rows();
      expect(rows).toHaveLength(1);
      expect(rows[0].prompt_tokens).toBeGreaterThan(0);
      expect(rows[0].completion_tokens).toBeGreaterThanOrEqual(pieces * 5);
    }
  });
});

test("a chat of the slow tier costs what one in a batch does, where the server says so and not where the model does", async () => {
  const upstream = startUpstream({ models: [DEAR] });
  upstreams.set("chat", upstream);
  for (const { dialect } of VOICES) await bench.removeBackend(dialect);
  await bench.addBackend({ type: "external", url: upstream.url, name: "chat", models: [DEAR] });
  const who = await bench.spender("waiting", { points: 100_000 });
  const usage = { prompt_tokens: 500, completion_tokens: 300, total_tokens: 800 };
  const part = async (answer: string | object) => {
    const stream = typeof answer === "string";
    const said = chunk({ delta: { content: "hi" }, finish_reason: "stop" });
    upstream.answer((_, reply) => (stream ? reply.stream([said, answer, DONE]) : reply.json(answer)));
    await (await who.chat({ stream, service_tier: "flex" })).text();
    const [row] = await who.rows();
    return row.cost / costUsd(row);
  };
  const flex = { service_tier: "flex" };
  const last = (tier: string) => usageChunk(usage).replace('"choices"', `"service_tier":"${tier}","choices"`);
  const parts = [
    await part({ ...completion("hi", { usage }), ...flex }),
    await part({ ...flex, ...completion("hi", { usage }) }),
    await part(last("flex")),
    await part({ ...completion('"service_tier":"flex"', { usage }), service_tier: "default" }),
    await part(completion('"flex"', { usage })),
    await part(last("default")),
  ];
  expect(parts.map((each) => Math.round(each * 1e6) / 1e6)).toEqual([0.5, 0.5, 0.5, 1, 1, 1]);
});

describe("an API that refuses a limit below 16 tokens may write 16", () => {
  const hi = { model: DEAR, messages: question };
  let who: Spender;
  let upstream: FakeUpstream;
  beforeAll(async () => {
    who = await bench.spender("sixteen", { points: 100_000 });
  });
  const only = async (dialects: string[]) => {
    for (const name of upstreams.keys()) await bench.removeBackend(name);
    const name = `sixteen ${dialects}`;
    upstream = startUpstream({ models: [DEAR] });
    upstreams.set(name, upstream);
    await bench.addBackend({ type: "external", url: upstream.url, name, models: [DEAR], dialects });
    upstream.answer(({ json }, reply) => {
      const { max_output_tokens: limit, max_tokens, n = 1 } = json;
      if (limit < 16) return reply.json({ error: { message: "integer below minimum value" } }, 400);
      const [prompt, output] = [1, limit ?? max_tokens * n];
      if (limit === undefined) {
        const usage = { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output };
        return reply.json(completion("ok", { usage }));
      }
      const usage = { input_tokens: prompt, output_tokens: output };
      return reply.json({ id: "r", object: "response", status: "completed", output: [], usage });
    });
  };
  const keyWith = (limits: object) => bench.rpc("keys.create", { name: "k", ...limits }, who.token);
  const spentBy = async (keyId: string) => {
    await who.rows();
    const listed = await bench.rpc("keys.list", {}, who.token);
    return listed.find(({ id }: { id: string }) => id === keyId).spent_total_usd;
  };
  /** Keys with from little to enough: none spends more than it may, and nothing seems wrong with the backend. */
  async function spend(limits: (step: number) => object, asks: [path: string, body: object][]) {
    const statuses = new Set<number>();
    for (let step = 0; step < 15; step++) {
      const own = { total_budget_usd: (300 + step * 50) / 1e6, ...limits(step) };
      const { id, key } = await keyWith(own);
      for (const [path, body] of asks) statuses.add((await who.post(path, body, { key })).status);
      expect(await spentBy(id)).toBeLessThanOrEqual(own.total_budget_usd);
    }
    const [health] = (await bench.backends()).backends.health;
    expect(health.implausible_usage).toBeNull();
    return [...statuses].sort();
  }
  const chats = (...bodies: object[]): [string, object][] =>
    bodies.map((body) => ["/v1/chat/completions", { ...hi, ...body }]);

  test("they are held", async () => {
    await only(["responses"]);
    const asks = chats({ max_tokens: 5 }, { max_completion_tokens: 15 }, { num_predict: 1 });
    expect(await spend(() => ({}), asks)).toEqual([200, 402]);
  });

  test("also where the key's pace has less left", async () => {
    await only(["responses"]);
    const native = { model: DEAR, input: "hi there", store: false, max_output_tokens: 5_000 };
    const asks: [string, object][] = [...chats({ max_tokens: 5_000 }), ["/v1/responses", native]];
    const paced = (step: number) => ({ tokens_per_minute: 25 + 3 * step, total_budget_usd: 1 });
    expect(await spend(paced, asks)).toEqual([200, 429]);
    expect(await spend(() => ({ tokens_per_minute: 36 }), asks)).not.toContain(200);
  });

  test("many answers have a token each, whatever the pace", async () => {
    await only(["chat"]);
    const paced = (step: number) => ({ tokens_per_minute: 20 + 3 * step });
    await spend(paced, chats({ max_tokens: 500, n: 10 }));
  });

  test("chats that it gets as chats are held as they are", async () => {
    const text: [string, object] = [
      "/v1/completions",
      { model: DEAR, prompt: "hi", max_tokens: 1, best_of: 9 },
    ];
    for (const [path, body] of [...chats({ max_tokens: 1, n: 10 }), text]) {
      const least: number[] = [];
      for (const dialects of [["chat"], ["chat", "responses"]]) {
        await only(dialects);
        for (let usd = 0.0002; ; usd *= 1.2) {
          const { key } = await keyWith({ total_budget_usd: usd });
          if ((await who.post(path, body, { key })).status !== 200) continue;
          least.push(usd);
          break;
        }
      }
      expect(least[1]).toBe(least[0]);
    }
  });
});
