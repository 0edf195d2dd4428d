import type { TestDatabase } from "@model-gateway/testing/databases.ts";
import { deploymentOfRun, everywhere } from "@model-gateway/testing/deployment.ts";
import {
  ADMIN_TOKEN,
  type BootOptions,
  bootGateway,
  type TestGateway,
} from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import {
  type FakeUpstream,
  type FakeUpstreamOptions,
  startUpstream,
} from "@model-gateway/testing/upstream.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";

export interface InferenceBench extends TestGateway {
  upstream: FakeUpstream;
  /** Access token of the user whose key it is. */
  token: string;
  userId: string;
  key: string;
  post(
    path: string,
    body: unknown,
    init?: { headers?: Record<string, string>; signal?: AbortSignal },
  ): Promise<Response>;
  chat(
    body: Record<string, unknown>,
    init?: { headers?: Record<string, string>; signal?: AbortSignal },
  ): Promise<Response>;
  admin(method: string, path: string, body?: unknown, token?: string): Promise<Response>;
  /** Registers a backend and waits until it is routable. */
  addBackend(body: Record<string, unknown>): Promise<void>;
  /** Removes the backend of this name by its index. */
  removeBackend(name: string): Promise<Response>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into reports freely
  backends(): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into rows freely
  usageRows(): Promise<any[]>;
}

const SETTLED_WITHIN_MS = 5_000;
/** What every process has recorded is in the books. A busy machine may settle later than the service lets readers wait. */
export async function settled({ app }: TestGateway): Promise<void> {
  await (app.rooms.metering as MeteringService).flush(SETTLED_WITHIN_MS);
  if (deploymentOfRun) await app.rooms.usage.settled();
}

/** A gateway with a fake upstream behind it, and a user with a key on an unlimited plan. */
export async function bootInference(
  options: BootOptions & { upstream?: FakeUpstreamOptions } = {},
): Promise<InferenceBench> {
  const gateway = await bootGateway({
    ...options,
    config: { apiRateLimitRpm: 100_000, ...options.config },
  });
  const upstream = startUpstream(options.upstream);
  const token = await gateway.signIn("ada");
  const { id: userId } = await gateway.rpc("auth.me", {}, token);
  await gateway.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const { key } = await gateway.rpc("keys.create", { name: "test" }, token);
  const request = (path: string, init: RequestInit) => fetch(`${gateway.url}${path}`, init);
  const post: InferenceBench["post"] = (path, body, { headers, signal } = {}) =>
    request(path, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
      signal,
    });
  const admin: InferenceBench["admin"] = (method, path, body, bearer = ADMIN_TOKEN) =>
    request(`/api/admin${path}`, {
      method,
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  const bench: InferenceBench = {
    ...gateway,
    upstream,
    token,
    userId,
    key,
    post,
    chat: (body, init) =>
      post(
        "/v1/chat/completions",
        { model: "m", messages: [{ role: "user", content: "hi there" }], ...body },
        init,
      ),
    admin,
    backends: async () => (await admin("GET", "/backends")).json(),
    async addBackend(body) {
      const answer = await admin("POST", "/backends", body);
      if (!answer.ok) throw new Error(await answer.text());
      const { name } = (await answer.json()) as { name: string };
      const isRoutable = async () => {
        const { health } = (await bench.backends()).backends;
        const entry = health.find((each: { name: string }) => each.name === name);
        return entry?.state === "Healthy" && entry.circuit.consecutive_failures === 0;
      };
      await until(`${name} is healthy`, () => everywhere(isRoutable));
    },
    async removeBackend(name) {
      const { health } = (await bench.backends()).backends as { health: { name: string; index: number }[] };
      const index = health.find((entry) => entry.name === name)?.index;
      return admin("DELETE", "/backends", { index });
    },
    usageRows: async () => {
      await settled(gateway);
      return (await gateway.rpc("usage.list", { limit: 200 }, token)).records;
    },
    async stop() {
      upstream.stop();
      await gateway.stop();
    },
  };
  await bench.addBackend({ name: "first", type: "external", url: upstream.url });
  return bench;
}

/** Runs `work` on a gateway with a database of its own. */
export async function withInference(
  fresh: () => Promise<TestDatabase>,
  work: (bench: InferenceBench) => Promise<void>,
): Promise<void> {
  const { options, drop } = await fresh();
  const bench = await bootInference({ config: { databaseUrl: options.databaseUrl } });
  try {
    await work(bench);
  } finally {
    await bench.stop();
    await drop();
  }
}
