/** The examples of the operator's guide, in front of a gateway. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, politeHandler, usageChunk } from "@model-gateway/testing/upstream.ts";
import { bootInference, type InferenceBench } from "../../packages/gateway/tests/support/inference.ts";

const GUIDE = readFileSync(join(import.meta.dir, "../../docs/operators-guide.md"), "utf8");
const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const example = (language: string): string =>
  new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(GUIDE)![1]!;

interface Proxy {
  name: string;
  file: string;
  config(dir: string, example: string): string;
  args(file: string): string[];
}

const PROXIES: readonly Proxy[] = [
  {
    name: "nginx",
    file: "nginx.conf",
    config: (dir, text) =>
      `daemon off;\npid ${dir}/nginx.pid;\nerror_log ${dir}/error.log;\nevents {}\nhttp {\naccess_log off;\n` +
      ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map((name) => `${name}_temp_path ${dir}/${name};\n`)
        .join("") +
      `${text}}\n`,
    args: (file) => ["-c", file],
  },
  { name: "haproxy", file: "haproxy.cfg", config: (_, text) => text, args: (file) => ["-f", file] },
  {
    name: "caddy",
    file: "Caddyfile",
    config: (dir, text) => `{\n  admin off\n  auto_https off\n  storage file_system ${dir}\n}\n${text}`,
    args: (file) => ["run", "--config", file, "--adapter", "caddyfile"],
  },
];

for (const { name, file, config, args } of PROXIES) {
  const command = Bun.which(name, { PATH: SYSTEM_PATH });
  describe.if(command !== null)(`behind ${name}`, () => {
    let bench: InferenceBench;
    let proxy: ChildProcess;
    let url: string;
    const dir = mkdtempSync(join(tmpdir(), `gateway-${name}-`));

    beforeAll(async () => {
      bench = await bootInference({ config: { trustedProxies: ["127.0.0.1"] } });
      const port = await freePort();
      const text = example(name)
        .replace("listen 80;", `listen 127.0.0.1:${port};`)
        .replace("bind :80", `bind 127.0.0.1:${port}`)
        .replace("gateway.example.com {", `http://127.0.0.1:${port} {`)
        .replace("127.0.0.1:8080", new URL(bench.url).host);
      writeFileSync(join(dir, file), config(dir, text));
      // Caddy keeps a copy of its settings in the home folder.
      const env = { PATH: SYSTEM_PATH, HOME: dir };
      proxy = spawn(command!, args(join(dir, file)), { stdio: "ignore", env });
      url = `http://127.0.0.1:${port}`;
      await until("the proxy answers", () =>
        fetch(`${url}/v1/health`).then(
          ({ ok }) => ok,
          () => false,
        ),
      );
    });
    afterAll(async () => {
      const ended = new Promise((resolve) => proxy.once("exit", resolve));
      proxy.kill("SIGTERM");
      await ended;
      await bench.stop();
      rmSync(dir, { recursive: true, force: true });
    });

    const ask = (signal?: AbortSignal) =>
      fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${bench.key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: "hi" }] }),
        signal,
      });

    test("a token arrives before the next one is written", async () => {
      let goOn = () => {};
      const heard = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { content: "first" } }));
        await heard;
        await reply.write(
          chunk({ delta: { content: "second" }, finish_reason: "stop" }) + usageChunk() + DONE,
        );
        await reply.end();
      });
      const reader = (await ask()).body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      while (!text.includes("first")) text += (await reader.read()).value;
      goOn();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
      }
      expect(text).toContain("second");
      expect(text).toEndWith("[DONE]\n\n");
    });

    test("a client that leaves stops the upstream", async () => {
      bench.upstream.answer(async (_, reply) => {
        reply.head(200, { "content-type": "text/event-stream" });
        await reply.write(chunk({ delta: { content: "first" } }));
        await new Promise(() => {});
      });
      const leaving = new AbortController();
      const answer = await ask(leaving.signal);
      await answer.body!.getReader().read();
      leaving.abort();
      await until("the upstream is left", () => bench.upstream.requests.at(-1)!.closedAtMs !== null);
      bench.upstream.answer(politeHandler);
    });

    test("WebSockets pass", async () => {
      const socket = new WebSocket(`${url.replace("http", "ws")}/api/rpc?token=${bench.token}`);
      const answer = await new Promise<string>((resolve, reject) => {
        socket.onopen = () => socket.send('{"jsonrpc":"2.0","id":1,"method":"auth.me"}');
        socket.onmessage = ({ data }) => resolve(String(data));
        socket.onclose = ({ code, reason }) => reject(new Error(`closed: ${code} ${reason}`));
      });
      socket.close();
      expect(JSON.parse(answer).result.email).toBe("ada@example.com");
    });

    test("the client's own address counts, and one that it claims does not", async () => {
      const wrong = async (claimed: string) => {
        const answer = await fetch(`${url}/api/rpc`, {
          method: "POST",
          headers: { "content-type": "application/json", "x-forwarded-for": claimed },
          body: JSON.stringify({
            jsonrpc: "2.0",
            id: 1,
            method: "auth.login",
            params: { email: "nobody@example.com", password: "a wrong password" },
          }),
        });
        return ((await answer.json()) as { error: { message: string } }).error.message;
      };
      const told: string[] = [];
      for (let i = 0; i < 7; i++) told.push(await wrong(`10.0.0.${i}`));
      // Five a minute for an address and an account, whatever the client says about where it is.
      expect(told[0]).not.toBe(told.at(-1));
      expect(told.filter((message) => message === told[0]).length).toBe(5);
    });
  });
}

test("Traefik's example has the form of its file provider", () => {
  const { http } = Bun.YAML.parse(example("yaml")) as Record<string, Record<string, Record<string, unknown>>>;
  expect(http).toEqual({
    routers: { gateway: { rule: "Host(`gateway.example.com`)", service: "gateway" } },
    services: { gateway: { loadBalancer: { servers: [{ url: "http://127.0.0.1:8080" }] } } },
  });
});
