import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { startCommand, startServer, untilReady } from "./processes.ts";

/** What a measurement runs against; the keys of every figure. */
export type Peer = "nginx" | "bare" | "parsing" | "portkey" | "router" | "gateway";

/** Something between the clients and the upstream. */
export interface Target {
  peer: Peer;
  pid: number;
  port: number;
  key: string;
  /** Used in turns, instead of `key`. */
  keys?: string[];
  /** Lines that each of its requests carries, each with its line end. */
  headers: string;
  /** Of a load's requests, how many it is sent: one that takes 20 times as long need not take 20 times the time. */
  share: number;
  /** From the start of the process to its first answer. */
  startedMs: number;
}

/** Everything that a run leaves on disk, gone when it ends. */
export const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

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
  client_body_buffer_size 1m;
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
  const beganAt = performance.now();
  const { pid } = startCommand([binary, "-p", folder, "-c", config]);
  await untilReady("nginx", async () => (await fetch(`http://127.0.0.1:${port}/v1/models`)).ok);
  const startedMs = performance.now() - beganAt;
  return { peer: "nginx", pid, port, key: "none", headers: "", share: 1, startedMs };
}

export async function startBareProxy(
  upstreamPort: number,
  peer: "bare" | "parsing" = "bare",
): Promise<Target> {
  const beganAt = performance.now();
  const proxy = await startServer("bare-proxy.ts", [`http://127.0.0.1:${upstreamPort}`, peer]);
  await untilReady(
    "the bare proxy",
    async () => (await fetch(`http://127.0.0.1:${proxy.port}/v1/models`)).ok,
  );
  const startedMs = performance.now() - beganAt;
  return { peer, key: "none", headers: "", share: 1, startedMs, ...proxy };
}
