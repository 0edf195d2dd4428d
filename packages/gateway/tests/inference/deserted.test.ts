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

const send = () =>
  gateway.rpc<{ stream_id: string }>(
    "chat.send",
    { model: "demo-slow", messages: [{ role: "user", content: "count" }] },
    token,
  );
const listen = (streamId: string, signal: AbortSignal) =>
  fetch(`${gateway.url}/api/rpc/events?session=${streamId}`, { signal });

async function readUntil(response: Response, words: string): Promise<void> {
  let text = "";
  for await (const chunk of response.body!) {
    text += new TextDecoder().decode(chunk);
    if (text.includes(words)) return;
  }
}

test("an answer that nobody listens to any more is stopped at the model and metered", async () => {
  const { stream_id } = await send();
  const leaving = new AbortController();
  await readUntil(await listen(stream_id, leaving.signal), "word3");
  leaving.abort();
  await until("the end of the upstream's stream", () => upstream.aborted() === 1);
  const rows = async () =>
    (await gateway.rpc<{ records: { completion_tokens: number }[] }>("usage.list", {}, token)).records;
  await until("the usage row", async () => (await rows()).length === 1);
  expect((await rows())[0]?.completion_tokens).toBeGreaterThan(3);
});

test("a subscriber that comes back in time keeps it going", async () => {
  const before = upstream.aborted();
  const { stream_id } = await send();
  const first = new AbortController();
  await readUntil(await listen(stream_id, first.signal), "word3");
  first.abort();
  await readUntil(await listen(stream_id, AbortSignal.timeout(60_000)), '"done":true');
  expect(upstream.aborted()).toBe(before);
});
