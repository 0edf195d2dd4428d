import { afterAll, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, type Upstream } from "../../../../tests/e2e/support/upstream.ts";

let gateway: TestGateway;
let upstream: Upstream;
let token: string;
beforeAll(async () => {
  upstream = startUpstream();
  gateway = await bootGateway();
  token = await gateway.signIn("listener");
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ name: "demo", type: "external", url: upstream.url }),
  });
  await until("a routable model", async () => {
    const { models } = (await (await fetch(`${gateway.url}/v1/health`)).json()) as { models: number };
    return models > 0;
  });
});
afterAll(async () => {
  await gateway.stop();
  upstream.stop();
});

const send = (params: Record<string, unknown> = {}) =>
  gateway.rpc<{ stream_id: string }>(
    "chat.send",
    { model: "demo-slow", messages: [{ role: "user", content: "count" }], ...params },
    token,
  );
interface Piece {
  content?: string;
  done?: boolean;
  error?: { message: string };
}

/** Reads a stream from after `lastId` until the words are there, or to its end: the text, and the last id. */
async function read(streamId: string, { lastId, until: words }: { lastId?: string; until?: string } = {}) {
  const response = await fetch(`${gateway.url}/api/rpc/events?session=${streamId}`, {
    headers: lastId === undefined ? {} : { "last-event-id": lastId },
  });
  let rest = "";
  let text = "";
  let id = lastId ?? "0";
  const decoder = new TextDecoder();
  for await (const bytes of response.body!) {
    const events = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = events.pop()!;
    for (const event of events) {
      id = /^id: (.*)$/m.exec(event)?.[1] ?? id;
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (data === undefined) continue;
      const { params } = JSON.parse(data) as { params: Piece };
      text += params.content ?? "";
      const isEnough = words !== undefined && text.includes(words);
      if (!params.done && !isEnough) continue;
      return { text, id, done: params.done === true };
    }
  }
  throw new Error(`the stream ended after ${text}`);
}

interface Stored {
  role: string;
  content: string;
  incomplete?: string;
}
const newConversation = async () => (await gateway.rpc<{ id: string }>("conversations.create", {}, token)).id;
const messagesOf = async (conversation_id: string) =>
  (await gateway.rpc<{ messages: Stored[] }>("conversations.get", { conversation_id }, token)).messages;
const usageRows = async () =>
  (await gateway.rpc<{ records: { completion_tokens: number }[] }>("usage.list", {}, token)).records;

test("an answer goes on when its subscriber leaves; one that comes back gets what it missed", async () => {
  const conversation = await newConversation();
  const { stream_id } = await send({ conversation_id: conversation });
  const before = await read(stream_id, { until: "word3" });
  expect(before.done).toBe(false);
  upstream.hurry();
  await until("the stored answer", async () => (await messagesOf(conversation)).length === 2);
  const after = await read(stream_id, { lastId: before.id });
  expect(after.done).toBe(true);
  const [asked, answered] = await messagesOf(conversation);
  expect(asked).toMatchObject({ role: "user", content: "count" });
  expect(answered).toMatchObject({ role: "assistant", content: before.text + after.text });
  expect(answered!.incomplete).toBeUndefined();
  expect(upstream.aborted()).toBe(0);
  await until("the usage row", async () => (await usageRows()).length === 1);
});

test("an answer that nobody ever listens to is stored and metered", async () => {
  const conversation = await newConversation();
  const asked = upstream.requests.length;
  await send({ conversation_id: conversation });
  await until("the model is asked", () => upstream.requests.length > asked);
  upstream.hurry();
  await until("the stored answer", async () => (await messagesOf(conversation)).length === 2);
  await until("the usage row", async () => (await usageRows()).length === 2);
});

test("chat.stop ends it at the model, for its owner alone; the part is stored with the reason, and metered", async () => {
  const conversation = await newConversation();
  const { stream_id } = await send({ conversation_id: conversation });
  const before = await read(stream_id, { until: "word3" });
  await gateway.rpc("chat.stop", { stream_id }, await gateway.signIn("stranger"));
  await gateway.rpc("chat.stop", { stream_id: crypto.randomUUID() }, token);
  expect(upstream.aborted()).toBe(0);
  expect(await gateway.rpc<unknown>("chat.stop", { stream_id }, token)).toEqual({ ok: true });
  await until("the end of the upstream's stream", () => upstream.aborted() === 1);
  const after = await read(stream_id, { lastId: before.id });
  expect(after.done).toBe(true);
  await until("the stored part", async () => (await messagesOf(conversation)).length === 2);
  const [, part] = await messagesOf(conversation);
  expect(part).toMatchObject({ role: "assistant", content: before.text + after.text, incomplete: "stopped" });
  await until("the usage row", async () => (await usageRows()).length === 3);
  expect((await usageRows())[0]!.completion_tokens).toBeGreaterThan(3);
  // Once more changes nothing.
  await gateway.rpc("chat.stop", { stream_id }, token);
});
