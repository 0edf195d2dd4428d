import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { resolveEngine, SetupError } from "../../src/resolve/index.ts";
import {
  type FileServer,
  type ProxyOptions,
  startFileServer,
  startHttpProxy,
  startSocksProxy,
  type TestProxy,
} from "./servers.ts";
import { fakeHost, startWorker, TEST_PLATFORM, TEST_VERSION, type TempDir, tempDir } from "./support.ts";
import { makeChromeZip } from "./zip-writer.ts";

const zip = makeChromeZip(TEST_PLATFORM, TEST_VERSION, 3_000_000);
const sha256 = new Bun.CryptoHasher("sha256").update(zip).digest("hex");
/** A name that only the proxy can resolve, so a download that works went through it. */
const hidden = "mirror.invalid";
const hosts = { [hidden]: "127.0.0.1" };

let server: FileServer;
let cache: TempDir;
const proxies: TestProxy[] = [];
beforeAll(async () => {
  server = await startFileServer(zip);
});
afterAll(() => server.close());
beforeEach(() => {
  cache = tempDir();
});
afterEach(async () => {
  cache.remove();
  server.faults.length = 0;
  server.requests.length = 0;
  for (const proxy of proxies.splice(0)) await proxy.close();
});

async function start(kind: "http" | "socks5", options: ProxyOptions = {}): Promise<TestProxy> {
  const begin = kind === "http" ? startHttpProxy : startSocksProxy;
  const proxy = await begin({ hosts, ...options });
  proxies.push(proxy);
  return proxy;
}

function env(proxyUrl: string): Record<string, string> {
  return {
    BROWSER_CACHE_DIR: cache.path,
    BROWSER_CHROME_MIRROR: `http://${hidden}:${server.port}`,
    BROWSER_CHROME_VERSION: TEST_VERSION,
    BROWSER_CHROME_SHA256: sha256,
    BROWSER_DOWNLOAD_PROXY: proxyUrl,
  };
}

const resolve = (proxyUrl: string) => resolveEngine({ env: env(proxyUrl), host: fakeHost() });

async function failure(proxyUrl: string): Promise<SetupError> {
  const error = await resolve(proxyUrl).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(SetupError);
  return error;
}

describe.each(["http", "socks5"] as const)("a download through a proxy of kind %s", (kind) => {
  test("goes through it, names included", async () => {
    const proxy = await start(kind);
    expect((await resolve(`${kind}://127.0.0.1:${proxy.port}`)).source).toBe("download");
    expect(proxy.targets).toEqual([`${hidden}:${server.port}`]);
  });

  test("gives the credentials of its URL", async () => {
    const proxy = await start(kind, { credentials: "ann:pass word" });
    expect((await resolve(`${kind}://ann:pass%20word@127.0.0.1:${proxy.port}`)).source).toBe("download");
  });

  test("goes on through it after a broken connection", async () => {
    const proxy = await start(kind);
    server.faults.push({ kind: "cut", afterBytes: 1_000_000 });
    expect((await resolve(`${kind}://127.0.0.1:${proxy.port}`)).source).toBe("download");
    expect(server.requests).toHaveLength(2);
  });
});

describe("a SOCKS5 proxy that refuses", () => {
  test("is named as the cause, without its password", async () => {
    const proxy = await start("socks5", { credentials: "ann:right" });
    const wrong = await failure(`socks5://ann:wrong-one@127.0.0.1:${proxy.port}`);
    expect(wrong.code).toBe("download_failed");
    expect(wrong.message).toContain("refused the user name or password");
    expect(wrong.message).not.toContain("wrong-one");
    const none = await failure(`socks5://127.0.0.1:${proxy.port}`);
    expect(none.message).toContain("wants credentials");
  });
});

describe("TLS", () => {
  let keys: TempDir;
  beforeAll(() => {
    keys = tempDir();
    const made = Bun.spawnSync(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost,DNS:mirror.invalid,IP:127.0.0.1".split(
        " ",
      ),
      { cwd: keys.path, stderr: "ignore" },
    );
    expect(made.exitCode).toBe(0);
  });
  afterAll(() => keys.remove());

  const tls = () => ({
    key: readFileSync(join(keys.path, "key.pem"), "utf8"),
    cert: readFileSync(join(keys.path, "cert.pem"), "utf8"),
  });
  const run = async (extra: Record<string, string>) =>
    startWorker({ ...env(""), NODE_EXTRA_CA_CERTS: join(keys.path, "cert.pem"), ...extra }).result;

  test("an https proxy carries the download", async () => {
    const proxy = await start("http", { tls: tls() });
    const result = await run({ BROWSER_DOWNLOAD_PROXY: `https://localhost:${proxy.port}` });
    expect(result).toMatchObject({ ok: true, source: "download" });
    expect(proxy.targets).toEqual([`${hidden}:${server.port}`]);
  });

  test.each(["http", "socks5"] as const)(
    "an https mirror is reached through a tunnel of %s",
    async (kind) => {
      const mirror = Bun.serve({
        port: 0,
        hostname: "127.0.0.1",
        tls: tls(),
        fetch: () => new Response(new Uint8Array(zip)),
      });
      try {
        const proxy = await start(kind);
        const result = await run({
          BROWSER_CHROME_MIRROR: `https://${hidden}:${mirror.port}`,
          BROWSER_DOWNLOAD_PROXY: `${kind}://127.0.0.1:${proxy.port}`,
        });
        expect(result).toMatchObject({ ok: true, source: "download" });
        expect(proxy.targets).toEqual([`${hidden}:${mirror.port}`]);
      } finally {
        await mirror.stop(true);
      }
    },
  );

  test("a redirect from https to http is refused", async () => {
    const mirror = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      tls: tls(),
      fetch: () => Response.redirect(`${server.url}/x.zip`),
    });
    try {
      const result = await run({ BROWSER_CHROME_MIRROR: `https://localhost:${mirror.port}` });
      expect(result).toMatchObject({ ok: false, code: "download_failed" });
      expect(result?.message).toContain("from https to http");
    } finally {
      await mirror.stop(true);
    }
  });
});
