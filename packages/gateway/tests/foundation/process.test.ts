import { Database } from "bun:sqlite";
import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MAIN = join(import.meta.dir, "../../src/main.ts");
const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

function start(args: string[], env: Record<string, string> = {}) {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-process-"));
  const child = Bun.spawn([process.execPath, MAIN, ...args], {
    env: {
      PATH: process.env.PATH!,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_WARM_UP: "0",
      ...env,
    },
    stdout: "pipe",
    stderr: "pipe",
  });
  cleanups.push(() => {
    child.kill("SIGKILL");
    rmSync(dataDir, { recursive: true, force: true });
  });
  return child;
}

/** The address that the process prints when it serves. */
async function listening(child: ReturnType<typeof start>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    text += decoder.decode(chunk, { stream: true });
    const url = /listening on (http:\S+)/.exec(text)?.[1];
    if (url && text.includes("accounts")) return url;
  }
  throw new Error(`no address: ${text}${await new Response(child.stderr).text()}`);
}

test("--help lists every setting and exits 0", async () => {
  const child = start(["--help"]);
  const text = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  expect(text).toMatch(/SERVICE_PORT\s+port to listen on.*\(default: 8080\)/);
});

test("bad settings stop the start, each one named", async () => {
  const child = start([], { SERVICE_PRT: "1", SERVICE_LOG_LEVEL: "loud" });
  const text = await new Response(child.stderr).text();
  expect(await child.exited).toBe(1);
  expect(text).toContain("SERVICE_PRT");
  expect(text).toContain("SERVICE_LOG_LEVEL");
});

test("an unknown option and a taken port are explained", async () => {
  const odd = start(["--serve"]);
  expect(await new Response(odd.stderr).text()).toContain("--serve is not an option");
  const first = start([]);
  const url = await listening(first);
  const second = start([], { SERVICE_PORT: new URL(url).port });
  expect(await new Response(second.stderr).text()).toContain("the port is already in use");
  expect(await second.exited).toBe(1);
});

test("SIGTERM: unready at once, open streams finish, exit 0", async () => {
  const child = start([], { SERVICE_DRAIN_GRACE_MS: "2000", SERVICE_DRAIN_TIMEOUT_MS: "600000" });
  const url = await listening(child);
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  const stream = await fetch(`${url}/api/rpc/events?session=s`);
  const reader = stream.body!.getReader();
  await reader.read();
  child.kill("SIGTERM");
  for (let status = 200; status !== 503; ) status = (await fetch(`${url}/readyz`)).status;
  // During the grace period the stream is still served.
  await fetch(`${url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-session-id": "s" },
    body: '{"jsonrpc":"2.0","id":"late","method":"system.status"}',
  });
  expect(new TextDecoder().decode((await reader.read()).value)).toContain('"late"');
  // Then nothing is under way, and a stream that only waits does not keep the service.
  expect((await reader.read()).done).toBe(true);
  expect(await child.exited).toBe(0);
  expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

for (const workers of ["1", "2"])
  test(`registration that was opened in the console is warned of at the next start, ${workers} workers`, async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "gateway-opened-"));
    cleanups.push(() => rmSync(dataDir, { recursive: true, force: true }));
    const env = {
      SERVICE_DATA_DIR: dataDir,
      SERVICE_TRUSTED_PROXIES: "10.0.0.1",
      SERVICE_METRICS_TOKEN: "0123456789abcdef",
      SERVICE_WORKERS: workers,
    };
    const WARNING = "registration is open to everyone who can reach the service; close it in the console";
    const first = start([], env);
    await listening(first);
    first.kill("SIGTERM");
    await first.exited;
    expect(await new Response(first.stderr).text()).not.toContain(WARNING);
    const db = new Database(join(dataDir, "gateway.sqlite"));
    db.run("INSERT INTO service_settings (name, value) VALUES ('SERVICE_REGISTRATION_OPEN', 'true')");
    db.close();
    const second = start([], env);
    await listening(second);
    let said = "";
    for await (const chunk of second.stderr.pipeThrough(new TextDecoderStream())) {
      said += chunk;
      if (said.includes(WARNING)) break;
    }
    expect(said.split(WARNING)).toHaveLength(2);
  });

test("a second process on the same embedded database may take over, and is warned as long as there are two", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-shared-"));
  cleanups.push(() => rmSync(dataDir, { recursive: true, force: true }));
  const warned = async (child: ReturnType<typeof start>) => {
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
    return (await new Response(child.stderr).text()).includes(`another process serves from ${dataDir}`);
  };
  const [first, second] = [
    start([], { SERVICE_DATA_DIR: dataDir }),
    start([], { SERVICE_DATA_DIR: dataDir }),
  ];
  await Promise.all([listening(first), listening(second)]);
  expect([await warned(first), await warned(second)].filter(Boolean).length).toBe(1);
  const third = start([], { SERVICE_DATA_DIR: dataDir });
  await listening(third);
  third.kill("SIGKILL");
  await third.exited;
  const fourth = start([], { SERVICE_DATA_DIR: dataDir });
  await listening(fourth);
  expect(await warned(fourth)).toBe(false);
}, 30_000);

test("a token that can be guessed stops the start; the message says how to make one, and not what it was", async () => {
  const child = start([], { SERVICE_METRICS_TOKEN: "canary-15-chars" });
  expect(await child.exited).toBe(1);
  const said = await new Response(child.stderr).text();
  expect(said).toContain("SERVICE_METRICS_TOKEN: must have at least 16 characters");
  expect(said).toContain("openssl rand -hex 32");
  expect(said).not.toContain("canary");
});

test("a start without its database or Redis ends and says which, without the password", async () => {
  const nobody = "127.0.0.1:1";
  const withoutDatabase = start([], { SERVICE_DATABASE_URL: `postgres://u:hidden@${nobody}/x` });
  const withoutRedis = start([], { SERVICE_REDIS_URL: `redis://:hidden@${nobody}` });
  for (const [child, place] of [
    [withoutDatabase, `postgres://${nobody}/x`],
    [withoutRedis, `redis://${nobody}`],
  ] as const) {
    const text = await new Response(child.stderr).text();
    expect(await child.exited).toBe(1);
    expect(text).toContain(`${place} cannot be reached`);
    expect(text).not.toContain("hidden");
  }
}, 30_000);

test("workers: a start that fails says why once, and leaves no process", async () => {
  const odd = start(["--workers"]);
  expect(await new Response(odd.stderr).text()).toContain("--workers needs a number, or auto");
  const none = start(["--workers=0"]);
  expect(await new Response(none.stderr).text()).toContain("SERVICE_WORKERS: ");
  const taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  cleanups.push(() => taken.stop(true));
  const child = start(["--workers", "2"], { SERVICE_PORT: String(taken.port) });
  // The pipe closes when the last process that has it ends, the workers' included.
  const text = await new Response(child.stderr).text();
  expect(await child.exited).toBe(1);
  expect(text.match(/the port is already in use/g)).toHaveLength(1);
}, 30_000);

test("warming up leaves nothing behind: no row, no figure, no folder", async () => {
  const folders = [0, 1].map(() => mkdtempSync(join(tmpdir(), "gateway-warm-")));
  cleanups.push(() => folders.map((folder) => rmSync(folder, { recursive: true, force: true })));
  const [warmed, plain] = folders.map((folder, index) =>
    start([], {
      SERVICE_DATA_DIR: folder,
      SERVICE_WARM_UP: index === 0 ? "2" : "0",
      SERVICE_LOG_LEVEL: "debug",
      TMPDIR: folder,
    }),
  );
  const urls = await Promise.all([listening(warmed!), listening(plain!)]);
  let log = "";
  for await (const chunk of warmed!.stderr) {
    log += new TextDecoder().decode(chunk);
    if (log.includes('"warmed up"')) break;
    expect(log).not.toContain("warming up failed");
  }
  const rowsIn = (folder: string) => {
    const db = new Database(join(folder, "gateway.sqlite"), { readonly: true });
    const tables = db
      .query<{ name: string }, []>("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'leases'")
      .all();
    const counts = tables.map(({ name }) => [name, db.query(`SELECT COUNT(*) AS n FROM "${name}"`).get()]);
    db.close();
    return Object.fromEntries(counts);
  };
  expect(rowsIn(folders[0]!)).toEqual(rowsIn(folders[1]!));
  const metrics = await (await fetch(`${urls[0]}/metrics`)).text();
  expect(metrics).not.toMatch(/^gateway_(requests|inference_requests|tokens)_total\{/m);
  expect(await (await fetch(`${urls[0]}/v1/models`)).text()).not.toContain('"available":true');
  expect(readdirSync(folders[0]!).filter((name) => name.startsWith("model-gateway-warm-up"))).toEqual([]);
}, 60_000);
