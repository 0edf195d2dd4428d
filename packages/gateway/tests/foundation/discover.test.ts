import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway();
});
afterAll(() => gateway.stop());

const call = async (body: object, token?: string) => {
  const response = await fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: token ? { authorization: `Bearer ${token}` } : {},
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...body }),
  });
  return response.json();
};

test("rpc.discover is the document that the path has, with the server's path alone", async () => {
  const document = await (await fetch(`${gateway.url}/api/openrpc.json`)).json();
  const published = { ...document, servers: [{ name: "this service", url: "/api/rpc" }] };
  expect((await call({ method: "rpc.discover", params: [] })).result).toEqual(published);
  const token = await gateway.signIn("ada");
  expect((await call({ method: "rpc.discover" }, token)).result).toEqual(published);
});

test("an empty list of parameters is none; a list with something in it is refused", async () => {
  const token = await gateway.signIn("bob");
  expect((await call({ method: "auth.me", params: [] }, token)).result.email).toBe("bob@example.com");
  expect((await call({ method: "auth.me", params: [1] }, token)).error.code).toBe(-32602);
});
