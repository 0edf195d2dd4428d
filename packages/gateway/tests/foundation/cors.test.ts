import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "../support/gateway.ts";

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
