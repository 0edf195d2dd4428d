import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";

const ORIGIN = "https://app.example";
let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway({ config: { corsOrigins: [ORIGIN] } });
});
afterAll(() => gateway.stop());

const preflight = (origin: string) =>
  fetch(`${gateway.url}/v1/messages`, {
    method: "OPTIONS",
    headers: {
      origin,
      "access-control-request-method": "POST",
      "access-control-request-headers": "x-api-key, anthropic-version",
    },
  });

test("a listed origin may call with the headers that its library sends; others may not", async () => {
  const allowed = await preflight(ORIGIN);
  expect(allowed.status).toBe(204);
  expect(allowed.headers.get("access-control-allow-origin")).toBe(ORIGIN);
  expect(allowed.headers.get("access-control-allow-headers")).toBe("x-api-key, anthropic-version");
  const foreign = await preflight("https://evil.example");
  expect([foreign.status, foreign.headers.get("access-control-allow-origin")]).toEqual([403, null]);
  const answer = await fetch(`${gateway.url}/v1/models`, { headers: { origin: ORIGIN } });
  expect(answer.headers.get("access-control-allow-origin")).toBe(ORIGIN);
  const other = await fetch(`${gateway.url}/v1/models`, { headers: { origin: "https://evil.example" } });
  expect(other.headers.get("access-control-allow-origin")).toBeNull();
});

const EVIL = "https://evil.example";

/** What a page can send without asking first: a form's content type, and no readable answer. */
const blindly = (headers: Record<string, string>, method = "system.status") =>
  fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "text/plain", ...headers },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method,
      params: { email: "mallory@example.com", password: PASSWORD },
    }),
  });

/** Whether the upgrade is made. */
const opens = (headers: Record<string, string>, query = "") =>
  new Promise<boolean>((resolve) => {
    const url = `${gateway.url.replace("http", "ws")}/api/rpc${query}`;
    const socket = new WebSocket(url, { headers } as unknown as string[]);
    socket.onopen = () => {
      socket.close();
      resolve(true);
    };
    socket.onerror = () => resolve(false);
  });

test("a page of another site cannot register an account, nor open a socket that could", async () => {
  const refused = await blindly({ origin: EVIL }, "auth.register");
  expect(refused.status).toBe(403);
  const { error } = (await refused.json()) as { error: { message: string } };
  expect(error.message).toContain("SERVICE_CORS_ORIGINS");
  const login = { email: "mallory@example.com", password: PASSWORD };
  expect((await gateway.call("auth.login", login)).error.code).toBe(-32005);
  expect(await opens({ origin: EVIL })).toBe(false);
  expect(await opens({ origin: EVIL }, "?token=invented")).toBe(false);
  const otherPort = gateway.url.replace(/:\d+$/, ":1");
  for (const headers of [
    { origin: otherPort },
    { origin: "null" },
    { origin: gateway.url, "sec-fetch-site": "cross-site" },
    { origin: otherPort, "sec-fetch-site": "same-site" },
  ] as Record<string, string>[]) {
    expect([(await blindly(headers)).status, await opens(headers)]).toEqual([403, false]);
  }
});

test("the service's own pages, listed sites, programs and whoever has credentials are served", async () => {
  for (const headers of [
    {},
    { origin: gateway.url },
    { origin: gateway.url.replace("http:", "https:") },
    { origin: ORIGIN },
    { origin: ORIGIN, "sec-fetch-site": "cross-site" },
    // Behind a proxy that does not pass the host on.
    { origin: "https://gateway.example", "sec-fetch-site": "same-origin" },
  ] as Record<string, string>[]) {
    expect([(await blindly(headers)).status, await opens(headers)]).toEqual([200, true]);
  }
  const token = await gateway.signIn("ada");
  expect((await blindly({ origin: EVIL, authorization: `Bearer ${token}` })).status).toBe(200);
  expect(await opens({ origin: EVIL }, `?token=${token}`)).toBe(true);
});
