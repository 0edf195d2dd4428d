/** Every route of the registry and every WebSocket, tried without the credentials that it declares. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Registry } from "../../src/kernel/registry.ts";
import type { AnyRoute, RouteAuth } from "../../src/kernel/route.ts";
import { surfaces } from "../../src/rooms/index.ts";
import { registerBackend } from "../instances/support.ts";
import { ROUTES, SOCKETS } from "./access.ts";

const { routes } = new Registry(surfaces);
const nameOf = ({ method, path }: AnyRoute) => `${method} ${path}`;

const voice = startRealtimeUpstream("openai");
let gateway: TestGateway;
/** A valid credential of each kind, and some that are valid elsewhere or no longer. */
let credentials: Record<string, string>;

beforeAll(async () => {
  gateway = await bootGateway({ config: { trustedProxies: ["127.0.0.1"] } });
  const admin = await gateway.signIn("admin");
  const person = await gateway.signIn("person");
  const { key } = await gateway.rpc("keys.create", { name: "test" }, person);
  await registerBackend(gateway, {
    type: "cloud-realtime",
    name: "voice",
    url: voice.url,
    api_key: "sk",
    models: ["omni"],
  });
  await until("a voice is served", () => gateway.app.rooms.routing.modelCount === 1);
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
  const gone = await rpc("agents.register", { machine_name: "gone", version: "1" }, admin);
  await rpc("agents.deregister", { agent_id: gone.agent_id }, admin);
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
    deregistered_node: gone.token,
  };
}
afterAll(async () => {
  await gateway.stop();
  voice.stop();
});

/** The kinds of credentials that each auth lets in. */
const LETS_IN: Record<RouteAuth, readonly string[]> = {
  public: [],
  api_key: ["api_key"],
  jwt: ["jwt", "admin"],
  admin: ["admin"],
  admin_token: ["admin_token"],
  jwt_or_admin_token: ["jwt", "admin", "admin_token"],
};

/** One address each: one is locked out after so many wrong tokens. */
const address = () => `10.${Array.from(crypto.getRandomValues(new Uint8Array(3))).join(".")}`;

const call = (route: AnyRoute, bearer: string) =>
  fetch(gateway.url + route.path.replace(/\{\w+\}/g, "00000000-0000-4000-8000-000000000000"), {
    method: route.method,
    headers: {
      "x-forwarded-for": address(),
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

test("each transport of WebSockets is in the table", async () => {
  const transports = join(import.meta.dir, "../../src/transports");
  let others = 0;
  for await (const file of new Bun.Glob("**/*.ts").scan(transports))
    if ((await Bun.file(join(transports, file)).text()).includes("implements SocketTransport")) others++;
  expect(SOCKETS).toHaveLength(others + 1);
});

/** How a credential may come along. */
const CARRIERS = {
  header: (bearer: string) => ({ headers: { authorization: `Bearer ${bearer}` } }),
  query: (bearer: string) => ({ query: `token=${encodeURIComponent(bearer)}` }),
  protocol: (bearer: string) => ({ protocols: ["realtime", `openai-insecure-api-key.${bearer}`] }),
};

interface Dialed {
  isOpen: boolean;
  /** Whether it may call what needs a sign-in; only on `/api/rpc`. */
  isSignedIn: boolean;
}

async function dial(path: string, carrier: keyof typeof CARRIERS, bearer: string): Promise<Dialed> {
  const {
    query,
    headers = {},
    protocols,
  } = CARRIERS[carrier](bearer) as {
    query?: string;
    headers?: Record<string, string>;
    protocols?: string[];
  };
  const url = new URL(gateway.url.replace("http", "ws") + path);
  if (query) url.search += `${url.search ? "&" : ""}${query}`;
  const options = { headers: { "x-forwarded-for": address(), ...headers }, protocols };
  const socket = new WebSocket(url, options as never);
  const isOpen = await new Promise<boolean>((resolve) => {
    socket.onopen = () => resolve(true);
    socket.onclose = () => resolve(false);
  });
  let isSignedIn = false;
  if (isOpen && path === "/api/rpc") {
    const answer = new Promise<string>((resolve) => {
      socket.onmessage = ({ data }) => resolve(String(data));
    });
    socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" }));
    isSignedIn = JSON.parse(await answer).result !== undefined;
  }
  socket.close();
  return { isOpen, isSignedIn };
}

describe.each(SOCKETS)("WebSocket $path", ({ path, who, by }) => {
  // A key that has not yet used up its requests a minute.
  beforeAll(async () => {
    credentials.api_key = (await gateway.rpc("keys.create", { name: "fresh" }, credentials.jwt)).key;
  });
  // Clients end a socket that selects none of the protocols which they offer.
  const carriers = who === "anyone" ? by : (["header", "query", "protocol"] as const);

  test.each(carriers)("with a credential in the %s", async (carrier) => {
    for (const [kind, bearer] of Object.entries(credentials)) {
      const isOpen = who === "anyone" || (by.includes(carrier) && who.includes(kind));
      const isSignedIn = who === "anyone" && by.includes(carrier) && ["jwt", "admin"].includes(kind);
      expect([kind, await dial(path, carrier, bearer)]).toEqual([kind, { isOpen, isSignedIn }]);
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
    if (route.path.startsWith("/v1/responses")) {
      const message = route.method === "POST" ? OWN_FORM : PLAIN.trim();
      const error = { message, type: "auth_error", param: null, code: "unauthorized" };
      expect(JSON.parse(text)).toEqual({ error });
    } else if (name.startsWith("POST /v1/messages")) {
      const message = name.endsWith("count_tokens") ? PLAIN.trim() : OWN_FORM;
      const request_id = answer.headers.get("request-id");
      const error = { type: "authentication_error", message, details: null };
      expect(JSON.parse(text)).toEqual({ type: "error", error, request_id });
    } else if (OLLAMA_PATHS.test(route.path)) {
      expect(JSON.parse(text)).toEqual({ error: route.path === "/api/show" ? PLAIN.trim() : OWN_FORM });
    } else if (route.path.startsWith("/v1beta/")) {
      const error = { code: 401, message: OWN_FORM, status: "UNAUTHENTICATED", details: [] };
      expect(JSON.parse(text)).toEqual({ error });
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
