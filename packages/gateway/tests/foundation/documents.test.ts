import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import metaSchemaModule from "@open-rpc/meta-schema";
import Ajv from "ajv";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway();
});
afterAll(() => gateway.stop());

const get = async (path: string) => (await fetch(gateway.url + path)).json();

test("the OpenRPC document is valid and lists every method", async () => {
  const document = await get("/api/openrpc.json");
  const published = (metaSchemaModule as { default?: object }).default ?? metaSchemaModule;
  // The meta-schema points at draft 7 under another address; that host is out of reach, the schema is not.
  const schema = JSON.parse(
    JSON.stringify(published).replaceAll(/https:\/\/meta\.json-schema\.tools\/?/g, "schema:draft7"),
  );
  const ajv = new Ajv({ strict: false, validateFormats: false, logger: false });
  const draft = await import("ajv/dist/refs/json-schema-draft-07.json");
  ajv.addSchema({
    ...draft.default,
    $id: "schema:draft7",
    $schema: undefined,
    definitions: {
      ...draft.default.definitions,
      JSONSchemaObject: { properties: { $ref: { type: "string" } } },
    },
  });
  const validate = ajv.compile({ ...schema, $schema: undefined });
  expect(validate(document) ? [] : validate.errors).toEqual([]);
  expect(document.openrpc).toBe("1.3.2");
  expect(document.servers).toEqual([{ name: "this service", url: `${gateway.url}/api/rpc` }]);
  const names = document.methods.map(({ name }: { name: string }) => name);
  expect(names).toContain("auth.register");
  expect(new Set(names).size).toBe(names.length);
  for (const { params } of document.methods) {
    const flags = params.map(({ required }: { required: boolean }) => required);
    expect(flags).toEqual([...flags].sort((a, b) => Number(b) - Number(a)));
  }
});

test("the OpenRPC document's server is the address that its reader used", async () => {
  const serverOf = async (headers: Record<string, string>) => {
    const answer = await fetch(`${gateway.url}/api/openrpc.json`, { headers });
    return (await answer.json()).servers[0].url;
  };
  expect(await serverOf({ host: "models.example:8443" })).toBe("http://models.example:8443/api/rpc");
  expect(await serverOf({ host: "models.example", "x-forwarded-proto": "https" })).toBe(
    "https://models.example/api/rpc",
  );
  expect(await serverOf({ host: "a", "x-forwarded-proto": "javascript" })).toBe("http://a/api/rpc");
});

test("the OpenAPI document lists every route with its security", async () => {
  const document = await get("/api/openapi.json");
  expect(document.openapi).toBe("3.1.0");
  expect(
    document.paths["/healthz"].get.responses["200"].content["application/json"].schema.required,
  ).toContain("build_hash");
  const { get: readyz } = document.paths["/readyz"];
  expect(readyz.summary).toContain("Same as /v1/health");
  expect(readyz.responses["200"].content["application/json"].schema.required).toContain("usage_journal");
});

test("the reference page names every method", async () => {
  const { methods } = await get("/api/openrpc.json");
  const page = await (await fetch(`${gateway.url}/api/reference.md`)).text();
  for (const { name } of methods) expect(page).toContain(`### ${name}\n`);
});

test("health under all its names; unknown paths and verbs are clear", async () => {
  for (const path of ["/v1/health", "/api/health", "/healthz", "/readyz"]) {
    expect(await get(path)).toEqual({
      status: "ok",
      version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
      build_hash: expect.any(String),
      models: expect.any(Number),
      providers: expect.any(Number),
      ...(path === "/readyz" && {
        usage_journal: { rows: 0, bytes: 0, stalled_seconds: 0 },
      }),
    });
  }
  const wrongVerb = await fetch(`${gateway.url}/healthz`, { method: "POST" });
  expect([wrongVerb.status, wrongVerb.headers.get("allow")]).toEqual([405, "GET"]);
  const unknown = await fetch(`${gateway.url}/nope`, { method: "POST" });
  expect([unknown.status, (await unknown.json()).error.code]).toEqual([404, "not_found"]);
});
