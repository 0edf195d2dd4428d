import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, type UpstreamHandler, wholeStream } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

// biome-ignore lint/suspicious/noExplicitAny: messages are looked into freely
type Message = any;

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

/** What is wrong with a list of messages by the rules of OpenAI, Anthropic and Ollama's templates together. */
function problemOf(messages: Message[]): string | null {
  const systems = messages.filter(({ role }) => role === "system" || role === "developer");
  if (systems.length > 1) return "more than one system message";
  if (systems.length === 1 && messages[0] !== systems[0]) return "the system message is not the first";
  const turns = messages.slice(systems.length);
  if (turns[0]?.role !== "user") return `the first message is of ${turns[0]?.role}`;
  let open: string[] = [];
  let last = "";
  for (const { role, content, tool_calls, tool_call_id } of turns) {
    if (role === "tool") {
      if (open.shift() !== tool_call_id) return `the result ${tool_call_id} does not follow its call`;
      if (typeof content !== "string") return "a result is not a text";
      continue;
    }
    if (open.length > 0) return `the call ${open[0]} has no result`;
    if (role === last) return `two messages of ${role} in a row`;
    if (content?.length === 0 || (content === null && !tool_calls)) return `an empty message of ${role}`;
    last = role;
    open = (tool_calls ?? []).map(({ id }: { id: string }) => id);
    if (open.some((id) => typeof id !== "string")) return "a call has no id";
    // Behind results the model speaks next, or the user.
    if (open.length > 0) last = "tool";
  }
  return open.length > 0 ? `the call ${open[0]} has no result` : null;
}

const problems: string[] = [];
const strict =
  (then: UpstreamHandler): UpstreamHandler =>
  (request, reply) => {
    const problem = problemOf(request.json.messages);
    if (problem === null) return then(request, reply);
    problems.push(`${problem}: ${JSON.stringify(request.json.messages)}`);
    return reply.json({ error: { message: problem } }, 400);
  };
const says = (text: string) => strict((_, reply) => reply.stream(wholeStream([text])));
const callsTools = strict((_, reply) => {
  const call = (index: number, id: string) => ({
    index,
    id,
    type: "function",
    function: { name: "f", arguments: "{}" },
  });
  return reply.stream([
    chunk({ delta: { role: "assistant", content: null } }),
    chunk({ delta: { tool_calls: [call(0, "a"), call(1, "b")] } }),
    chunk({ finish_reason: "tool_calls" }),
    DONE,
  ]);
});
afterEach(() => {
  expect(problems.splice(0)).toEqual([]);
});

const newConversation = async () => (await bench.rpc("conversations.create", {}, bench.token)).id as string;
const stored = async (conversation_id: string): Promise<Message[]> =>
  (await bench.rpc("conversations.get", { conversation_id }, bench.token)).messages;
const sentUpstream = (): Message[] => bench.upstream.requests.at(-1)!.json.messages;

/** One turn of chat.send, until its answer is stored. */
async function turn(conversation_id: string, messages: Message[], rest: Record<string, unknown> = {}) {
  const { stream_id } = await bench.rpc(
    "chat.send",
    { model: "m", conversation_id, messages, ...rest },
    bench.token,
  );
  const response = await fetch(`${bench.url}/api/rpc/events?session=${stream_id}`);
  let text = "";
  for await (const piece of response.body!) {
    text += new TextDecoder().decode(piece);
    if (text.includes('"done":true')) break;
  }
}

const user = (content: unknown) => ({ role: "user", content });
const system = (content: string) => ({ role: "system", content });
const result = (tool_call_id: string, content: string) => ({ role: "tool", tool_call_id, content });
const briefly = (messages: Message[]) =>
  messages.map(
    ({ role, content, tool_calls }) => `${role}:${tool_calls ? "calls" : JSON.stringify(content)}`,
  );

test("a system prompt is kept, sent again, once, and replaced by a newer one", async () => {
  const id = await newConversation();
  bench.upstream.answer(says("yes"));
  await turn(id, [system("be brief"), user("one")]);
  await turn(id, [user("two")]);
  expect(briefly(sentUpstream())).toEqual([
    'system:"be brief"',
    'user:"one"',
    'assistant:"yes"',
    'user:"two"',
  ]);
  await turn(id, [system("be brief"), user("three")]);
  expect((await stored(id)).filter(({ role }) => role === "system")).toHaveLength(1);
  await turn(id, [system("be long"), user("four")]);
  expect(sentUpstream()[0]).toEqual(system("be long"));
  await turn(id, [user("five")]);
  expect(sentUpstream()[0]).toEqual(system("be long"));
});

test("tool calls are kept with their results, and each is answered in what is sent", async () => {
  const id = await newConversation();
  const tools = [{ type: "function", function: { name: "f" } }];
  bench.upstream.answer(callsTools);
  await turn(id, [user("use tools")], { tools });
  bench.upstream.answer(says("done"));
  // In the other order, and one of them only.
  await turn(id, [result("b", "B"), result("a", "A")], { tools });
  expect(sentUpstream().slice(-2)).toEqual([result("a", "A"), result("b", "B")]);
  expect(briefly(await stored(id))).toEqual([
    'user:"use tools"',
    "assistant:calls",
    'tool:"B"',
    'tool:"A"',
    'assistant:"done"',
  ]);
  bench.upstream.answer(callsTools);
  await turn(id, [user("again")], { tools });
  bench.upstream.answer(says("fine"));
  await turn(id, [user("never mind")], { tools });
  expect(sentUpstream().slice(-3)).toEqual([
    result("a", "(no result)"),
    result("b", "(no result)"),
    user("never mind"),
  ]);
});

test("images stay in the form that the client used", async () => {
  const id = await newConversation();
  bench.upstream.answer(says("a cat"));
  const parts = [
    { type: "text", text: "what is this?" },
    { type: "image_url", image_url: { url: "data:image/png;base64,AAAA", detail: "low" } },
  ];
  await turn(id, [user(parts)]);
  await turn(id, [{ role: "user", content: "and this?", images: ["QUJD"] }]);
  await turn(id, [user("sure?")]);
  expect(sentUpstream()[0]).toEqual(user(parts));
  expect(sentUpstream()[2]).toEqual({ role: "user", content: "and this?", images: ["QUJD"] });
  const [first, , second] = await stored(id);
  expect(first).toMatchObject({ content: "what is this?", images: [parts[1]!.image_url] });
  expect(second).toMatchObject({ content: "and this?", images: ["QUJD"] });
});

test("every new message is kept once: all of a call, and none that the client repeats", async () => {
  const id = await newConversation();
  bench.upstream.answer(says("yes"));
  await turn(id, [user("one")]);
  await turn(id, [user("one"), { role: "assistant", content: "yes" }, user("two")]);
  expect(briefly(await stored(id))).toEqual([
    'user:"one"',
    'assistant:"yes"',
    'user:"two"',
    'assistant:"yes"',
  ]);
  await turn(id, [user("first"), user("second")]);
  expect(briefly(await stored(id)).slice(4)).toEqual(['user:"first"', 'user:"second"', 'assistant:"yes"']);
  expect(sentUpstream().at(-1)).toEqual(user("first\n\nsecond"));
});

test("a turn that failed and is sent again is there once; what there was of an answer stays with the reason", async () => {
  const id = await newConversation();
  bench.upstream.answer(strict((_, reply) => reply.json({ error: { message: "no luck" } }, 400)));
  await turn(id, [user("hello")]);
  bench.upstream.answer(
    strict(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      await reply.write(chunk({ delta: { role: "assistant", content: "half of" } }));
      await until("the part is told", () => true);
      await reply.write(`data: {"error":{"message":"out of memory"}}\n\n`);
      await reply.end();
    }),
  );
  await turn(id, [user("hello")]);
  const messages = await stored(id);
  expect(briefly(messages)).toEqual(['user:"hello"', 'assistant:"half of"']);
  expect(messages[1].incomplete).toContain("out of memory");
  bench.upstream.answer(says("better"));
  await turn(id, [user("go on")]);
  expect(briefly(sentUpstream())).toEqual(['user:"hello"', 'assistant:"half of"', 'user:"go on"']);
});

test("over REST the client sends all of it; what follows its last answer is new", async () => {
  const id = await newConversation();
  bench.upstream.answer((_, reply) =>
    reply.json({ choices: [{ message: { content: "ok" }, finish_reason: "stop" }] }),
  );
  const messages: Message[] = [system("be brief"), user("one")];
  expect((await bench.chat({ conversation_id: id, messages })).status).toBe(200);
  messages.push({ role: "assistant", content: "ok" }, user("two"));
  expect((await bench.chat({ conversation_id: id, messages })).status).toBe(200);
  expect(sentUpstream()).toEqual(messages);
  expect(briefly(await stored(id))).toEqual([
    'system:"be brief"',
    'user:"one"',
    'assistant:"ok"',
    'user:"two"',
    'assistant:"ok"',
  ]);
});
