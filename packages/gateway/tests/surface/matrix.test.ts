/** Every route of the registry, called without the credentials that it declares. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Registry } from "../../src/kernel/registry.ts";
import type { AnyRoute, RouteAuth } from "../../src/kernel/route.ts";
import { surfaces } from "../../src/rooms/index.ts";
import { ROUTES } from "./access.ts";

const { routes } = new Registry(surfaces);
const nameOf = ({ method, path }: AnyRoute) => `${method} ${path}`;

let gateway: TestGateway;
/** A valid credential of each kind, and some that are valid elsewhere or no longer. */
let credentials: Record<string, string>;

beforeAll(async () => {
  gateway = await bootGateway({ config: { trustedProxies: ["127.0.0.1"] } });
  const admin = await gateway.signIn("admin");
  const person = await gateway.signIn("person");
  const { key } = await gateway.rpc("keys.create", { name: "test" }, person);
  const unknown = "service-00000000-0000-4000-8000-000000000000";
  credentials = {
    nothing: "",
    unknown,
    jwt: person,
    admin,
    admin_token: ADMIN_TOKEN,
    api_key: key,
    ...(await spent(admin)),
  };
});

/** Credentials that let nobody in any more, or not here. */
async function spent(admin: string): Promise<Record<string, string>> {
  const { rpc } = gateway;
  const signedIn = async (name: string) => {
    const account = { email: `${name}@example.com`, password: PASSWORD };
    return rpc("auth.register", account);
  };
  const [leaver, disabled] = [await signedIn("leaver"), await signedIn("disabled")];
  const { key: disabledKey } = await rpc("keys.create", { name: "k" }, disabled.access_token);
  const expires_at = new Date(Date.now() + 1_000).toISOString();
  const expiring = await rpc("keys.create", { name: "k", expires_at }, admin);
  const revoked = await rpc("keys.create", { name: "k" }, admin);
  await rpc("keys.revoke", { key_id: revoked.id }, admin);
  const node = await rpc("agents.register", { machine_name: "n", version: "1" }, admin);
  await rpc("auth.logout", { refresh_token: leaver.refresh_token });
  await rpc("users.update", { user_id: disabled.user.id, disabled: true }, admin);
  await until("the key has expired", () => Date.now() > Date.parse(expires_at));
  return {
    signed_out: leaver.access_token,
    refresh_token: disabled.refresh_token,
    disabled_jwt: disabled.access_token,
    disabled_key: disabledKey,
    expired_key: expiring.key,
    revoked_key: revoked.key,
    node: node.token,
  };
}
afterAll(() => gateway.stop());

/** The kinds of credentials that each auth lets in. */
const LETS_IN: Record<RouteAuth, readonly string[]> = {
  public: [],
  api_key: ["api_key"],
  jwt: ["jwt", "admin"],
  admin: ["admin"],
  admin_token: ["admin_token"],
  jwt_or_admin_token: ["jwt", "admin", "admin_token"],
};

const call = (route: AnyRoute, bearer: string) =>
  fetch(gateway.url + route.path.replace(/\{\w+\}/g, "00000000-0000-4000-8000-000000000000"), {
    method: route.method,
    // From many addresses: one is locked out after so many wrong tokens.
    headers: {
      "x-forwarded-for": `10.${Array.from(crypto.getRandomValues(new Uint8Array(3))).join(".")}`,
      ...(bearer && { authorization: `Bearer ${bearer}` }),
    },
    body: route.body ? "{}" : undefined,
  });

test("each route is in the table, under who may call it", () => {
  const by = Object.groupBy(routes, ({ auth }) => auth);
  const named = Object.entries(by).map(([auth, of]) => [auth, of.map(nameOf).sort()]);
  expect(Object.fromEntries(named)).toEqual(ROUTES as never);
});

describe.each(routes.map((route) => [nameOf(route), route] as const))("%s", (_, route) => {
  test(`lets in ${LETS_IN[route.auth].join(", ") || "everyone"}`, async () => {
    for (const [kind, bearer] of Object.entries(credentials)) {
      const answer = await call(route, bearer);
      const text = await answer.text();
      if (route.auth === "public" || LETS_IN[route.auth].includes(kind))
        expect([kind, answer.status]).not.toEqual([kind, 401]);
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
