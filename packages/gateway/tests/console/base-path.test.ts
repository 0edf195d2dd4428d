import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway({ config: { publicUrl: "https://example.com/gateway/" } });
});
afterAll(() => gateway.stop());

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}${path}`, { headers, redirect: "manual" });
const page = { accept: "text/html" };

test("the console is served below the path, and so is everything that it asks for", async () => {
  for (const path of ["/gateway/", "/gateway/conversations/new", "/"]) {
    const html = await (await get(path, page)).text();
    expect(html).toContain('<meta name="base-path" content="/gateway">');
    const links = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, link]) => link!);
    expect(links.length).toBeGreaterThan(1);
    for (const link of links.filter((each) => !each.startsWith("data:"))) {
      expect(link).toStartWith("/gateway/assets/");
      expect((await get(link)).status).toBe(200);
    }
  }
  const html = await (await get("/gateway/", page)).text();
  const script = /src="([^"]+\.js)"/.exec(html)![1]!;
  const code = await (await get(script)).text();
  expect(code).not.toMatch(/["'`]\/assets\//);
  expect((await get("/gateway", page)).headers.get("location")).toBe("/gateway/");
});

test("every surface answers with and without the prefix", async () => {
  for (const prefix of ["", "/gateway"]) {
    expect((await get(`${prefix}/v1/health`)).status).toBe(200);
    expect((await get(`${prefix}/v1/v1/models`)).status).toBe(200);
    expect((await get(`${prefix}/docs/pricing.md`)).status).toBe(200);
    expect((await get(`${prefix}/api/openrpc.json`)).status).toBe(200);
  }
  expect(await (await get("/gateway/llms.txt")).text()).toContain("](/gateway/docs/pricing.md)");
  expect((await get("/gatewayx/v1/health")).status).toBe(404);
});

test("JSON-RPC, its WebSocket and its event streams", async () => {
  const token = await gateway.signIn("ada");
  const answer = await fetch(`${gateway.url}/gateway/api/rpc`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: '{"jsonrpc":"2.0","id":1,"method":"auth.me"}',
  });
  expect(((await answer.json()) as { result: { email: string } }).result.email).toBe("ada@example.com");
  const socket = new WebSocket(`${gateway.url.replace("http", "ws")}/gateway/api/rpc?token=${token}`);
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = reject;
  });
  socket.close();
  const events = await get(`/gateway/api/rpc/events?session=${crypto.randomUUID()}&token=${token}`);
  expect(events.headers.get("content-type")).toContain("text/event-stream");
  await events.body!.cancel();
});
