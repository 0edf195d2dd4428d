import { Database } from "bun:sqlite";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rssMb, startCommand, startServer } from "./processes.ts";

/** Something between the clients and the upstream. */
export interface Target {
  name: string;
  pid: number;
  port: number;
  key: string;
}

const ADMIN_TOKEN = "bench-admin-token-0123456789";
const READY_WITHIN_MS = 15_000;
const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

async function freePort(): Promise<number> {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

async function until(check: () => Promise<boolean>, what: string): Promise<void> {
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  while (!(await check().catch(() => false))) {
    if (Date.now() > deadlineMs) throw new Error(`${what} did not become ready`);
    await Bun.sleep(2);
  }
}

/** A plain proxy with kept-alive connections, one worker; null when nginx is not installed. */
export async function startNginx(upstreamPort: number): Promise<Target | null> {
  const binary = Bun.which("nginx", { PATH: `${process.env.PATH}:/usr/sbin` });
  if (!binary) return null;
  const port = await freePort();
  const config = join(folder, "nginx.conf");
  writeFileSync(
    config,
    `worker_processes 1;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log crit;
daemon off;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  keepalive_requests 1000000;
  client_body_buffer_size 256k;
  upstream models { server 127.0.0.1:${upstreamPort}; keepalive 2048; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:${port} backlog=2048;
    location / {
      proxy_pass http://models;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_buffers 64 16k;
    }
  }
}
`,
  );
  const { pid } = startCommand([binary, "-p", folder, "-c", config]);
  await until(async () => (await fetch(`http://127.0.0.1:${port}/v1/models`)).ok, "nginx");
  return { name: "nginx", pid, port, key: "none" };
}

export async function startBareProxy(upstreamPort: number): Promise<Target> {
  const proxy = await startServer("bare-proxy.ts", [`http://127.0.0.1:${upstreamPort}`]);
  return { name: "bare Bun proxy", key: "none", ...proxy };
}

export interface GatewayTarget extends Target {
  accessToken: string;
  /** From the start of the process to the first answer of its health route. */
  startedMs: number;
  /** Memory before the first request. */
  restingRssMb: number;
}

/** Far above what a load test sends, so that every limit is checked and none refuses. */
const LIMIT_RPM = 200_000;

async function launch(port: number): Promise<{ child: Bun.Subprocess; startedMs: number }> {
  const beganAt = performance.now();
  const child = startCommand(
    [
      process.execPath,
      ...(process.env.BENCH_GATEWAY_FLAGS?.split(" ") ?? []),
      "packages/gateway/src/main.ts",
    ],
    {
      BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
      SERVICE_PORT: String(port),
      SERVICE_DATA_DIR: join(folder, "data"),
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      SERVICE_API_RATE_LIMIT_RPM: String(LIMIT_RPM),
      SERVICE_LOG_LEVEL: "warn",
    },
  );
  await until(async () => (await fetch(`http://127.0.0.1:${port}/v1/health`)).ok, "the gateway");
  return { child, startedMs: performance.now() - beganAt };
}

/** The service as it is started for real: keys, limits, metering and journal on. */
export async function startGateway(upstreamPort: number): Promise<GatewayTarget> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const first = await launch(port);
  const post = async (path: string, body: unknown, bearer?: string) => {
    const response = await fetch(url + path, {
      method: "POST",
      headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
      body: JSON.stringify(body),
    });
    const answer = (await response.json()) as { result?: Record<string, string>; error?: unknown };
    if (answer.error) throw new Error(JSON.stringify(answer.error));
    return answer.result ?? {};
  };
  const rpc = (method: string, params: unknown, bearer?: string) =>
    post("/api/rpc", { jsonrpc: "2.0", id: 1, method, params }, bearer);
  const user = { email: "bench@example.com", password: "bench password" };
  const { access_token: accessToken } = await rpc("auth.register", user);
  await rpc("billing.plan.set", { user_email: user.email, tier: "enterprise" }, ADMIN_TOKEN);
  const { key } = await rpc("keys.create", { name: "bench" }, accessToken);
  await post(
    "/api/admin/backends",
    { type: "external", url: `http://127.0.0.1:${upstreamPort}` },
    ADMIN_TOKEN,
  );

  // Tiers have no method that changes them, so the limit is raised where it is stored.
  first.child.kill();
  await first.child.exited;
  const db = new Database(join(folder, "data", "gateway.sqlite"));
  db.run("UPDATE billing_tiers SET rpm = ?", [LIMIT_RPM]);
  db.close();
  const { child, startedMs } = await launch(port);
  const restingRssMb = rssMb(child.pid);
  await until(
    async () => (await (await fetch(`${url}/v1/models`)).text()).includes('"bench"'),
    "the backend",
  );
  return {
    name: "gateway",
    pid: child.pid,
    port,
    key: key!,
    accessToken: accessToken!,
    startedMs,
    restingRssMb,
  };
}
