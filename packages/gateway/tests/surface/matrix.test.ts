/** Every route of the registry, called without the credentials that it declares. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { Registry } from "../../src/kernel/registry.ts";
import type { AnyRoute, RouteAuth } from "../../src/kernel/route.ts";
import { surfaces } from "../../src/rooms/index.ts";

const { routes } = new Registry(surfaces);
const nameOf = ({ method, path }: AnyRoute) => `${method} ${path}`;

/** Whoever opens another route to everyone says so here. */
const PUBLIC = [
  "GET /api/health",
  "GET /api/prices",
  "GET /api/tags",
  "GET /api/version",
  "GET /healthz",
  "GET /readyz",
  "GET /v1/health",
  "GET /v1/models",
  "GET /v1/models/{model}",
  "POST /api/auth/oidc/finish",
  "POST /api/auth/oidc/start",
];

let gateway: TestGateway;
/** A valid credential of each kind. */
let credentials: Record<"nothing" | "unknown" | "jwt" | "admin" | "admin_token" | "api_key", string>;

beforeAll(async () => {
  gateway = await bootGateway();
  const admin = await gateway.signIn("admin");
  const person = await gateway.signIn("person");
  const { key } = await gateway.rpc("keys.create", { name: "test" }, person);
  const unknown = "service-00000000-0000-4000-8000-000000000000";
  credentials = { nothing: "", unknown, jwt: person, admin, admin_token: ADMIN_TOKEN, api_key: key };
});
afterAll(() => gateway.stop());

/** The kinds of credentials that each auth lets in. */
const LETS_IN: Record<RouteAuth, readonly string[]> = {
  public: ["nothing", "unknown", "jwt", "admin", "admin_token", "api_key"],
  api_key: ["api_key"],
  jwt: ["jwt", "admin"],
  admin: ["admin"],
  admin_token: ["admin_token"],
  jwt_or_admin_token: ["jwt", "admin", "admin_token"],
};

const call = (route: AnyRoute, bearer: string) =>
  fetch(gateway.url + route.path.replace(/\{\w+\}/g, "00000000-0000-4000-8000-000000000000"), {
    method: route.method,
    headers: bearer ? { authorization: `Bearer ${bearer}` } : {},
    body: route.body ? "{}" : undefined,
  });

test("only these routes are open to everyone", () => {
  const open = routes.filter(({ auth }) => auth === "public").map(nameOf);
  expect(open.sort()).toEqual(PUBLIC);
});

describe.each(routes.map((route) => [nameOf(route), route] as const))("%s", (_, route) => {
  test(`lets in ${LETS_IN[route.auth].join(", ")}`, async () => {
    for (const [kind, bearer] of Object.entries(credentials)) {
      const answer = await call(route, bearer);
      const text = await answer.text();
      if (LETS_IN[route.auth].includes(kind)) expect([kind, answer.status]).not.toEqual([kind, 401]);
      else expect([kind, answer.status]).toEqual([kind, 401]);
      expect(answer.headers.get("x-request-id")).toBeTruthy();
      expect(text).not.toContain(bearer || "\u0000");
    }
  });
});

/** The contract's form of the refusal: plain text under /v1, but in their own form where clients of other APIs call. */
const PLAIN = "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n";
const OWN_FORM = "Invalid API key: send `Authorization: Bearer service-…`, as keys.create showed it";

const OLLAMA_PATHS = /^\/api\/(chat|generate|embed|show)$/;

test.each(routes.filter(({ auth }) => auth !== "public").map((route) => [nameOf(route), route] as const))(
  "%s refuses in the form of its surface",
  async (name, route) => {
    const answer = await call(route, "");
    const text = await answer.text();
    if (name === "POST /v1/responses") {
      const error = { message: OWN_FORM, type: "auth_error", param: null, code: "unauthorized" };
      expect(JSON.parse(text)).toEqual({ error });
    } else if (name.startsWith("POST /v1/messages")) {
      const message = name.endsWith("count_tokens") ? PLAIN.trim() : OWN_FORM;
      const request_id = answer.headers.get("request-id");
      const error = { type: "authentication_error", message, details: null };
      expect(JSON.parse(text)).toEqual({ type: "error", error, request_id });
    } else if (OLLAMA_PATHS.test(route.path)) {
      expect(JSON.parse(text)).toEqual({ error: route.path === "/api/show" ? PLAIN.trim() : OWN_FORM });
    } else if (route.auth === "api_key") {
      expect(answer.headers.get("content-type")).toBe("text/plain; charset=utf-8");
      expect(text).toBe(PLAIN);
    } else {
      const message = route.auth === "jwt" ? "authentication required" : "admin access required";
      const error = { message, type: "auth_error", code: "unauthorized" };
      expect(JSON.parse(text)).toEqual({ error });
    }
  },
);
