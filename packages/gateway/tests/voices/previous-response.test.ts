import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import OpenAI from "openai";
import { type Any, bootVoices, completion, eventStream, fixture, type VoiceBench } from "./support.ts";

let bench: VoiceBench;
let client: OpenAI;
beforeAll(async () => {
  bench = await bootVoices();
  client = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: bench.key, maxRetries: 0 });
});
afterAll(() => bench.stop());
afterEach(() => bench.reset());

const failureOf = (asking: Promise<unknown>) =>
  asking.then(
    () => null,
    ({ status, message }) => ({ status, message }),
  );

test("a response goes on from another: what was said before is sent, the instructions are not", async () => {
  bench.asked.answer = completion({ content: "Oslo." });
  const first = await client.responses.create({
    model: "m",
    instructions: "Be brief.",
    input: "Capital of Norway?",
  });
  expect(first).toMatchObject({ store: true } as object);
  bench.asked.answer = completion({ content: "Rainy." });
  const second = await client.responses.create({
    model: "m",
    instructions: "Be kind.",
    input: "Its weather?",
    previous_response_id: first.id,
  });
  expect(second.previous_response_id).toBe(first.id);
  expect(bench.asked.bodies.at(-1).messages).toEqual([
    { role: "system", content: "Be kind." },
    { role: "user", content: "Capital of Norway?" },
    { role: "assistant", content: "Oslo." },
    { role: "user", content: "Its weather?" },
  ]);

  // Another one goes on from the first: it knows nothing of the second.
  await client.responses.create({ model: "m", input: "And of Sweden?", previous_response_id: first.id });
  expect(bench.asked.bodies.at(-1).messages.map(({ content }: { content: string }) => content)).toEqual([
    "Capital of Norway?",
    "Oslo.",
    "And of Sweden?",
  ]);

  const conversation = async () => {
    const conversations = await bench.rpc("conversations.list", {}, bench.token);
    return conversations.find(({ title }: { title: string }) => title === "Capital of Norway?");
  };
  await until("the turns are a conversation", async () => (await conversation()) !== undefined);
  const found = await conversation();
  const { messages } = await bench.rpc("conversations.get", { id: found.id }, bench.token);
  expect(messages.map(({ content }: { content: string }) => content).slice(0, 4)).toEqual([
    "Capital of Norway?",
    "Oslo.",
    "Its weather?",
    "Rainy.",
  ]);
  await bench.rpc("conversations.delete", { id: found.id }, bench.token);
  const gone = client.responses.create({ model: "m", input: "x", previous_response_id: second.id });
  expect(await failureOf(gone)).toMatchObject({ status: 400 });
});

test("tool calls are kept as they were told, in whatever form they came", async () => {
  const call = (fields: object, name: string, args: unknown) => ({
    ...fields,
    function: { name, arguments: args },
  });
  const calls: Record<string, object[]> = {
    "one index for two": [
      call({ index: 0, id: "a" }, "f", '{"x":1}'),
      call({ index: 0, id: "b" }, "g", "{}"),
    ],
    "no index": [call({ id: "a" }, "f", '{"x":1}'), call({ id: "b" }, "g", "{}")],
    "no id": [call({ index: 0 }, "f", '{"x":1}'), call({ index: 1 }, "g", "{}")],
    "the name in every piece": [
      call({ index: 0, id: "a" }, "f", '{"x":'),
      call({ index: 0, id: "a" }, "f", "1}"),
    ],
    "arguments as an object": [
      call({ index: 0, id: "a" }, "f", { x: 1 }),
      call({ index: 1, id: "b" }, "g", {}),
    ],
  };
  const asChunk = (delta: object, finish_reason: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  for (const [how, pieces] of Object.entries(calls)) {
    for (const stream of [true, false]) {
      if (!stream && how === "the name in every piece") continue;
      const chunks = pieces.map((piece) => asChunk({ tool_calls: [piece] }));
      bench.asked.answer = stream
        ? eventStream(`${chunks.join("")}${asChunk({}, "tool_calls")}data: [DONE]\n\n`)
        : completion({ content: null, tool_calls: pieces }, "tool_calls");
      const asked = { model: "m", input: "Weather?" };
      const first = stream
        ? await client.responses.stream(asked).finalResponse()
        : await client.responses.create(asked);
      const told = first.output.flatMap((item) => (item.type === "function_call" ? [item] : []));
      expect([how, told.map(({ name }) => name)]).toEqual([
        how,
        how === "the name in every piece" ? ["f"] : ["f", "g"],
      ]);
      bench.asked.answer = completion({ content: "Sunny." });
      await client.responses.create({
        model: "m",
        previous_response_id: first.id,
        input: told.map(({ call_id }) => ({ type: "function_call_output" as const, call_id, output: "1" })),
      });
      const [, { tool_calls }] = bench.asked.bodies.at(-1).messages;
      const kept = tool_calls.map(({ id, function: { name, arguments: args } }: Any) => [id, name, args]);
      expect([how, stream, kept]).toEqual([
        how,
        stream,
        told.map(({ call_id, name, arguments: args }) => [call_id, name, args]),
      ]);
    }
  }
});

test("an answer is the assistant's whatever the upstream calls it", async () => {
  for (const role of [null, "system", "user", 5]) {
    bench.asked.answer = completion({ role, content: "Oslo." });
    const { id } = await client.responses.create({ model: "m", input: "Capital?" });
    await client.responses.create({ model: "m", input: "And?", previous_response_id: id });
    const { messages } = bench.asked.bodies.at(-1);
    expect(messages.map((message: { role: string }) => message.role)).toEqual(["user", "assistant", "user"]);
  }
});

test("a tool's result is enough after a streamed call", async () => {
  bench.asked.answer = eventStream(fixture("openai-tools.sse"));
  const stream = await client.responses.create({ model: "m", input: "Weather?", stream: true });
  let id = "";
  const calls: { call_id: string }[] = [];
  for await (const event of stream) {
    if (event.type !== "response.completed") continue;
    id = event.response.id;
    for (const item of event.response.output) if (item.type === "function_call") calls.push(item);
  }
  expect(calls.length).toBeGreaterThan(0);
  bench.asked.answer = completion({ content: "Sunny." });
  const answer = await client.responses.create({
    model: "m",
    previous_response_id: id,
    input: calls.map(({ call_id }) => ({ type: "function_call_output" as const, call_id, output: "22 C" })),
  });
  expect(answer.output_text).toBe("Sunny.");
  const { messages } = bench.asked.bodies.at(-1);
  const assistant = messages[1];
  expect(assistant.tool_calls.map((call: { id: string }) => call.id)).toEqual(
    calls.map(({ call_id }) => call_id),
  );
  expect(messages.slice(2).map((one: { tool_call_id: string }) => one.tool_call_id)).toEqual(
    calls.map(({ call_id }) => call_id),
  );
});

test("what is not kept, or another's, is refused alike, before anything is sent", async () => {
  const unkept = await client.responses.create({ model: "m", input: "x", store: false });
  expect(unkept).toMatchObject({ store: false } as object);
  const own = await client.responses.create({ model: "m", input: "secret" });
  const huge = await client.responses.create({ model: "m", input: "x".repeat(300_000) });
  expect(huge).toMatchObject({ store: false } as object);
  const token = await bench.signIn("eve");
  const { key } = await bench.rpc("keys.create", { name: "eve" }, token);
  const eve = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: key, maxRetries: 0 });
  bench.reset();
  const from = (who: OpenAI, previous_response_id: string) =>
    failureOf(who.responses.create({ model: "m", input: "go on", previous_response_id }));
  const refusals = [
    await from(eve, own.id),
    await from(client, unkept.id),
    await from(client, huge.id),
    await from(client, "resp_0"),
    await from(client, `resp_${"0".repeat(32)}`),
    await from(client, "resp_' OR 1=1"),
  ];
  for (const refusal of refusals) expect(refusal).toEqual(refusals[0]!);
  expect(refusals[0]).toMatchObject({
    status: 400,
    message: expect.stringContaining("previous_response_id"),
  });
  expect(bench.asked.bodies).toHaveLength(0);
  const elsewhere = await bench.post("/v1/chat/completions", {
    model: "m",
    input: "x",
    previous_response_id: own.id,
  });
  expect(elsewhere.status).toBe(400);
});

test("what is stored is looked for only by those who can pay for what they sent", async () => {
  const { key } = await bench.rpc("keys.create", { name: "slow", tokens_per_minute: 1 }, bench.token);
  const slow = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: key, maxRetries: 0 });
  const asked = { model: "m", input: "go on", previous_response_id: "resp_0" };
  expect(await failureOf(slow.responses.create(asked))).toMatchObject({ status: 429 });
  expect(await failureOf(client.responses.create(asked))).toMatchObject({ status: 400 });
});

test("an answer says that it is not stored where it is too long, or empty; a stream in its last event", async () => {
  const long = "x".repeat(200_000);
  bench.asked.answer = completion({ content: long });
  const whole = await client.responses.create({ model: "m", input: long });
  expect(whole).toMatchObject({ store: false } as object);
  bench.asked.answer = completion({ content: "" });
  expect(await client.responses.create({ model: "m", input: "x" })).toMatchObject({ store: false } as object);

  const storedIn = async (input: string) => {
    const stream = await client.responses.create({ model: "m", input, stream: true });
    const said: unknown[] = [];
    for await (const event of stream)
      if (event.type === "response.created" || event.type === "response.completed")
        said.push((event.response as unknown as { store: boolean }).store);
    return said;
  };
  const streamed = (text: string) => {
    const chunk = (delta: object, finish_reason: string | null) =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
    bench.asked.answer = eventStream(
      `${chunk({ role: "assistant", content: text }, null)}${chunk({}, "stop")}data: [DONE]\n\n`,
    );
  };
  streamed("short");
  expect(await storedIn("x")).toEqual([true, true]);
  expect(await storedIn("x".repeat(300_000))).toEqual([false, false]);
  streamed(long);
  expect(await storedIn(long)).toEqual([true, false]);
});

test("an operator can have nothing stored", async () => {
  const own = await bootVoices({ config: { storeResponses: false } });
  try {
    const strict = new OpenAI({ baseURL: `${own.url}/v1`, apiKey: own.key, maxRetries: 0 });
    own.asked.answer = completion({ content: "Oslo." });
    const answer = await strict.responses.create({ model: "m", input: "Capital?", store: true });
    expect(answer).toMatchObject({ output_text: "Oslo.", store: false } as object);
    const next = { model: "m", input: "And?", previous_response_id: answer.id };
    expect(await failureOf(strict.responses.create(next))).toMatchObject({
      status: 400,
      message: expect.stringContaining("`previous_response_id`: the operator"),
    });
  } finally {
    await own.stop();
  }
});

test("a stored response is given back as it was answered, and what was sent for it, until it is deleted", async () => {
  bench.asked.answer = completion({ content: "Oslo.", reasoning_content: "Norway…" });
  const asked = {
    model: "m",
    instructions: "Be brief.",
    metadata: { trip: "north" },
    tools: [{ type: "function" as const, name: "f", parameters: {}, strict: false }],
    input: [
      { role: "developer" as const, content: "Answer in English." },
      {
        type: "message" as const,
        role: "user" as const,
        content: [{ type: "input_text" as const, text: "Capital?" }],
      },
    ],
  };
  const first = await client.responses.create(asked);
  expect(await client.responses.retrieve(first.id)).toEqual(first);
  bench.asked.answer = eventStream(fixture("openai-tools.sse"));
  let second: OpenAI.Responses.Response = first;
  const stream = await client.responses.create({
    model: "m",
    input: "Weather?",
    instructions: "Be kind.",
    previous_response_id: first.id,
    stream: true,
  });
  for await (const event of stream) if (event.type === "response.completed") second = event.response;
  expect(second.previous_response_id).toBe(first.id);
  expect(await client.responses.retrieve(second.id)).toMatchObject(second);
  // It was taken out of those that it was stored with.
  expect(await client.responses.retrieve(first.id)).toEqual(first);

  const items = await client.responses.inputItems.list(first.id, { order: "asc" });
  expect(items.data).toMatchObject([
    { type: "message", role: "developer", content: [{ type: "input_text", text: "Answer in English." }] },
    { type: "message", role: "user", content: [{ type: "input_text", text: "Capital?" }] },
  ]);
  const pages = [];
  for await (const item of client.responses.inputItems.list(first.id, { limit: 1 })) pages.push(item);
  expect(pages).toEqual(items.data.toReversed());
  expect((await client.responses.inputItems.list(second.id)).data).toMatchObject([
    { role: "user", content: [{ type: "input_text", text: "Weather?" }] },
  ]);
  for (const after of ["item_0", second.id, items.data[0]!.id])
    expect(await failureOf(client.responses.inputItems.list(second.id, { after }))).toEqual({
      status: 400,
      message: expect.stringContaining("`after`"),
    });

  await client.responses.delete(first.id);
  const missing = { status: 404, message: expect.stringContaining("no such response of yours is kept") };
  expect(await failureOf(client.responses.retrieve(first.id))).toEqual(missing);
  expect(await failureOf(client.responses.delete(first.id))).toEqual(missing);
  expect(await failureOf(client.responses.inputItems.list(first.id))).toEqual(missing);
  const next = { model: "m", input: "And?" };
  for (const { id } of [first, second]) {
    const going = client.responses.create({ ...next, previous_response_id: id });
    expect(await failureOf(going)).toMatchObject({ status: 400 });
  }
  expect(await client.responses.retrieve(second.id)).toMatchObject({ id: second.id });
});

test("whatever is in a request and its answer is given back, alone and as part of a conversation", async () => {
  const odd = '\u0000 \ud800 \u2028 😀 "response":{"id":"resp_0"} \\u0000';
  const post = async (body: string) => {
    const headers = { authorization: `Bearer ${bench.key}`, "content-type": "application/json" };
    const answer = await fetch(`${bench.url}/v1/responses`, { method: "POST", headers, body });
    expect(answer.status).toBe(200);
    const text = await answer.text();
    const [, last] = /^event: response\.(?:completed|incomplete)\ndata: ([^\n]*)\n/m.exec(text) ?? [];
    return last ? JSON.parse(last).response : JSON.parse(text);
  };
  const get = async (path: string) => {
    const headers = { authorization: `Bearer ${bench.key}` };
    return (await fetch(`${bench.url}/v1/responses/${path}`, { headers })).json() as Any;
  };
  const messages = [
    { content: odd, refusal: odd },
    { content: null, refusal: "No." },
    { content: odd, tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: odd } }] },
  ];
  const asChunk = (delta: object, finish_reason: string | null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  for (const stream of [false, true]) {
    for (const message of messages) {
      bench.asked.answer = stream
        ? eventStream(`${asChunk(message, null)}${asChunk({}, "length")}data: [DONE]\n\n`)
        : completion(message, "length");
      const body = `{"model":"m","stream":${stream},"instructions":${JSON.stringify(odd)},"temperature":0.30000000000000004,
        "metadata":{"__proto__":"x","2":"b","1":"a","huge":1e400,"long":12345678901234567890},
        "tools":[{"type":"function","name":"f","parameters":{"response":{"id":"resp_${"0".repeat(32)}"}}}],
        "input":[{"id":null,"type":null,"role":"user","content":${JSON.stringify(odd)}},
          {"id":null,"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]`;
      const first = await post(`${body}}`);
      expect(first).toMatchObject({ store: true, status: "incomplete" });
      expect(await get(first.id)).toEqual(first);
      const second = await post(`${body},"previous_response_id":"${first.id}"}`);
      expect(await get(second.id)).toEqual(second);
      expect(await get(first.id)).toEqual(first);
      const { data } = await get(`${second.id}/input_items?order=asc`);
      expect(data.map(({ type, content }: Any) => [type, content[0].type])).toEqual([
        ["message", "input_text"],
        ["message", "input_image"],
      ]);
      expect(data[0].content[0].text).toBe(odd);
      expect(new Set(data.map(({ id }: Any) => id)).size).toBe(2);
    }
  }
});

test("items that share an id are paged to their end", async () => {
  const item = { id: "msg_same", type: "message" as const, role: "user" as const };
  const input = ["a", "b", "c"].map((text) => ({
    ...item,
    content: [{ type: "input_text" as const, text }],
  }));
  const { id } = await client.responses.create({ model: "m", input });
  let pages = 0;
  for await (const _ of (await client.responses.inputItems.list(id, { limit: 1 })).iterPages())
    expect(++pages).toBeLessThan(5);
});

test("a response is its user's alone, in the API's form, and not to be had as a stream", async () => {
  const own = await client.responses.create({ model: "m", input: "secret" });
  const token = await bench.signIn("mallory");
  const { key } = await bench.rpc("keys.create", { name: "mallory" }, token);
  const mallory = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: key, maxRetries: 0 });
  const refusals = [
    await failureOf(mallory.responses.retrieve(own.id)),
    await failureOf(mallory.responses.delete(own.id)),
    await failureOf(mallory.responses.inputItems.list(own.id)),
    await failureOf(client.responses.retrieve("resp_0")),
    await failureOf(client.responses.retrieve(`resp_${"0".repeat(32)}`)),
  ];
  for (const refusal of refusals) expect(refusal).toEqual(refusals[0]!);
  const other = await bench.rpc("keys.create", { name: "another of the same user" }, bench.token);
  const same = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: other.key, maxRetries: 0 });
  expect(await same.responses.retrieve(own.id)).toMatchObject({ id: own.id });
  // A key with limits of its own may be in other hands: it has what it stored, and nothing else.
  for (const limit of [{ total_budget_usd: 1 }, { allowed_models: ["m"] }]) {
    const given = await bench.rpc("keys.create", { name: "given away", ...limit }, bench.token);
    const limited = new OpenAI({ baseURL: `${bench.url}/v1`, apiKey: given.key, maxRetries: 0 });
    expect(await failureOf(limited.responses.retrieve(own.id))).toEqual(refusals[0]!);
    const from = { model: "m", input: "go on", previous_response_id: own.id };
    expect(await failureOf(limited.responses.create(from))).toMatchObject({ status: 400 });
    const { id } = await limited.responses.create({ model: "m", input: "x" });
    expect(await limited.responses.retrieve(id)).toMatchObject({ id });
  }

  const get = async (path: string, bearer = bench.key) => {
    const answer = await fetch(`${bench.url}/v1/responses/${path}`, {
      headers: { authorization: `Bearer ${bearer}` },
    });
    return [answer.status, await answer.json()] as const;
  };
  const error = (type: string, code: string) => ({
    error: { message: expect.any(String), type, param: null, code },
  });
  expect(await get("resp_0")).toEqual([404, error("invalid_request", "not_found")]);
  expect(await get(own.id, "wrong")).toEqual([401, error("auth_error", "unauthorized")]);
  expect((await get(`${own.id}?stream=true`))[0]).toBe(400);
  expect((await get(`${own.id}/input_items?limit=0`))[0]).toBe(400);
});

test("a response that is too large with its tools can be gone on from, but not given back", async () => {
  const tools = [
    { type: "function" as const, name: "f", parameters: { about: "x".repeat(300_000) }, strict: false },
  ];
  const large = await client.responses.create({ model: "m", input: "hi", tools });
  expect(large).toMatchObject({ store: true } as object);
  expect(await failureOf(client.responses.retrieve(large.id))).toEqual({
    status: 404,
    message: expect.stringContaining("kept for `previous_response_id` only"),
  });
  await client.responses.create({ model: "m", input: "And?", previous_response_id: large.id });
  expect(bench.asked.bodies.at(-1).messages).toHaveLength(3);
});
