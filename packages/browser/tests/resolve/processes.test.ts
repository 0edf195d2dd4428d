import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type FileServer, startFileServer } from "./servers.ts";
import { startWorker, TEST_PLATFORM, TEST_VERSION, type TempDir, tempDir } from "./support.ts";
import { makeChromeZip } from "./zip-writer.ts";

const zip = makeChromeZip(TEST_PLATFORM, TEST_VERSION, 6_000_000);
const sha256 = new Bun.CryptoHasher("sha256").update(zip).digest("hex");
let server: FileServer;
let cache: TempDir;

beforeEach(async () => {
  server = await startFileServer(zip);
  cache = tempDir();
});
afterEach(async () => {
  await server.close();
  cache.remove();
});

function env(extra: Record<string, string> = {}): Record<string, string> {
  return {
    BROWSER_CACHE_DIR: cache.path,
    BROWSER_CHROME_MIRROR: server.url,
    BROWSER_CHROME_VERSION: TEST_VERSION,
    BROWSER_CHROME_SHA256: sha256,
    ...extra,
  };
}

const chromeDir = () => readdirSync(join(cache.path, "chrome"));
const buildName = `${TEST_PLATFORM}-${TEST_VERSION}`;

async function expectInstalled(source: string): Promise<void> {
  const worker = startWorker(env());
  expect(await worker.result).toMatchObject({ ok: true, source });
  expect(chromeDir()).toEqual([buildName]);
  expect(readdirSync(join(cache.path, "downloads"))).toEqual([]);
}

describe("several processes and sudden deaths", () => {
  test("eight at once make one download and agree", async () => {
    const workers = Array.from({ length: 8 }, () => startWorker(env()));
    const results = await Promise.all(workers.map(({ result }) => result));
    expect(results.map((result) => result?.ok)).toEqual(Array(8).fill(true));
    expect(new Set(results.map((result) => result?.path)).size).toBe(1);
    expect(results.filter((result) => result?.source === "download")).toHaveLength(1);
    expect(server.requests).toHaveLength(1);
    expect(chromeDir()).toEqual([buildName]);
  });

  test("killed while downloading: the next one continues", async () => {
    server.faults.push({ kind: "stall", afterBytes: 2_000_000 });
    const killed = startWorker(env({ KILL_AT: "download:1" }));
    expect(await killed.result).toBeNull();
    expect(await killed.exited).toBe(137);
    expect(existsSync(join(cache.path, "chrome", buildName))).toBe(false);
    await expectInstalled("download");
    expect(server.requests.at(-1)?.range).toMatch(/^bytes=[1-9]\d*-$/);
  });

  test("killed while unpacking: nothing half-made is ever used, and it is cleared away", async () => {
    const killed = startWorker(env({ KILL_AT: "unpack:100000" }));
    expect(await killed.result).toBeNull();
    expect(chromeDir().filter((name) => name.startsWith(".tmp-"))).toHaveLength(1);
    expect(existsSync(join(cache.path, "chrome", buildName))).toBe(false);
    await expectInstalled("download");
    // The zip was whole, so it was not fetched again.
    expect(server.requests).toHaveLength(1);
  });

  test("one that waits takes over the moment the holder dies", async () => {
    server.faults.push({ kind: "stall", afterBytes: 2_000_000 });
    const holder = startWorker(env());
    await holder.reached("download");
    const waiter = startWorker(env());
    await waiter.reached("wait");
    holder.kill();
    expect(await waiter.result).toMatchObject({ ok: true, source: "download" });
    expect(await holder.result).toBeNull();
  });

  test("eight at once with a wrong checksum: all are told, nothing is installed", async () => {
    const wrong = env({ BROWSER_CHROME_SHA256: "f".repeat(64) });
    const workers = Array.from({ length: 8 }, () => startWorker(wrong));
    const results = await Promise.all(workers.map(({ result }) => result));
    expect(results.map((result) => result?.code)).toEqual(Array(8).fill("checksum_mismatch"));
    expect(chromeDir()).toEqual([]);
  });
});
