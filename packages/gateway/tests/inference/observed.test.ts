import { afterAll, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

type Span = {
  name: string;
  traceId: string;
  parentSpanId?: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status?: { code?: number };
};

let gateway: TestGateway;
let key: string;
const spans: Span[] = [];
const collector = Bun.serve({
  port: 0,
  async fetch(request) {
    const body = (await request.json()) as { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] };
    for (const { scopeSpans } of body.resourceSpans)
      for (const { spans: batch } of scopeSpans) spans.push(...batch);
    return Response.json({});
  },
});
const upstream = Bun.serve({
  port: 0,
  fetch(request) {
    if (request.url.endsWith("/models"))
      return Response.json({ object: "list", data: [{ id: "m", object: "model" }] });
    return Response.json({
      id: "c",
      object: "chat.completion",
      created: 1,
      model: "m",
      choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 },
    });
  },
});

beforeAll(async () => {
  gateway = await bootGateway({
    config: { otlpEndpoint: `http://127.0.0.1:${collector.port}` },
    // A scrape shows one instance, and has figures of workers apart.
    deployment: null,
  });
  ({ key } = await gateway.rpc("keys.create", { name: "k" }, await gateway.signIn("ada")));
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    body: JSON.stringify({ type: "external", name: "up", url: `http://127.0.0.1:${upstream.port}` }),
  });
  for (
    const deadline = Date.now() + 10_000;
    gateway.app.rooms.routing.modelCount === 0 && Date.now() < deadline;
  )
    await Bun.sleep(10);
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop(true);
  await collector.stop(true);
});

test("a call is counted, timed and traced under the client's own trace, without the key", async () => {
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, traceparent: `00-${traceId}-b7ad6b7169203331-01` },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }] }),
  });
  expect(answer.status).toBe(200);
  await answer.json();
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  expect(metrics).toContain('gateway_inference_requests_total{operation="chat",model="m",outcome="ok"} 1');
  expect(metrics).toContain('gateway_tokens_total{model="m",direction="input"} 9');
  expect(metrics).toContain('gateway_inference_seconds_count{operation="chat",model="m"} 1');
  expect(metrics).not.toContain(key.slice(8, 16));
  for (const deadline = Date.now() + 15_000; spans.length === 0 && Date.now() < deadline; )
    await Bun.sleep(50);
  const [span] = spans;
  expect(span).toMatchObject({ name: "chat m", traceId, parentSpanId: "b7ad6b7169203331" });
  const attributes = Object.fromEntries(
    span!.attributes.map(({ key: name, value }) => [name, Object.values(value)[0]]),
  );
  expect(attributes).toMatchObject({
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.provider.name": "up",
    "gateway.channel": "gateway",
  });
  expect(Number(attributes["gen_ai.usage.input_tokens"])).toBe(9);
  expect(JSON.stringify(spans)).not.toContain(key);
}, 30_000);
