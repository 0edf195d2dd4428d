import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { resolveEngine, SetupError } from "../../src/resolve/index.ts";
import { type FileServer, startFileServer } from "./servers.ts";
import { fakeHost, TEST_PLATFORM, TEST_VERSION, type TempDir, tempDir } from "./support.ts";
import { makeChromeZip } from "./zip-writer.ts";

const zip = makeChromeZip(TEST_PLATFORM, TEST_VERSION, 400_000);
const sha256 = new Bun.CryptoHasher("sha256").update(zip).digest("hex");
let server: FileServer;
let cache: TempDir;

beforeAll(async () => {
  server = await startFileServer(zip);
  cache = tempDir();
});
afterAll(async () => {
  await server.close();
  cache.remove();
});
afterEach(() => {
  cache.remove();
  cache = tempDir();
  server.file = zip;
  server.etag = '"one"';
  server.requests.length = 0;
  server.faults.length = 0;
});

function settings(extra: Record<string, string> = {}): Record<string, string> {
  return {
    BROWSER_CACHE_DIR: cache.path,
    BROWSER_CHROME_MIRROR: server.url,
    BROWSER_CHROME_VERSION: TEST_VERSION,
    ...extra,
  };
}

function resolve(extra: Record<string, string> = {}) {
  return resolveEngine({ env: settings(extra), host: fakeHost() });
}

async function failure(extra: Record<string, string> = {}): Promise<SetupError> {
  const error = await resolve(extra).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(SetupError);
  return error;
}

const part = () => join(cache.path, "downloads", `${TEST_PLATFORM}-${TEST_VERSION}.zip.part`);
const installed = () => existsSync(join(cache.path, "chrome", `${TEST_PLATFORM}-${TEST_VERSION}`));

describe("downloading the pinned build", () => {
  test("downloads once with progress, then uses the cache", async () => {
    const phases: string[] = [];
    const env = settings({ BROWSER_CHROME_SHA256: sha256.toUpperCase() });
    const first = await resolveEngine({
      env,
      host: fakeHost(),
      onProgress: ({ phase, doneBytes, totalBytes }) => {
        phases.push(phase);
        expect(doneBytes).toBeLessThanOrEqual(totalBytes ?? 0);
      },
    });
    const path = join(cache.path, "chrome", `${TEST_PLATFORM}-${TEST_VERSION}`, "chrome-linux64", "chrome");
    expect(first).toEqual({ kind: "cdp", name: "chrome", path, source: "download", version: TEST_VERSION });
    expect([...new Set(phases)]).toEqual(["download", "verify", "unpack"]);
    expect(server.requests[0]?.path).toBe(`/${TEST_VERSION}/linux64/chrome-linux64.zip`);
    expect(Bun.spawnSync([path, "--version"]).stdout.toString()).toContain(TEST_VERSION);
    expect(existsSync(part())).toBe(false);

    const second = await resolveEngine({ env, host: fakeHost() });
    expect(second.source).toBe("cache");
    expect(server.requests).toHaveLength(1);
    // Skipping downloads does not forbid what is already there.
    expect((await resolve({ BROWSER_SKIP_BROWSER_FETCH: "1" })).source).toBe("cache");
  });

  test("a wrong checksum installs nothing and leaves nothing", async () => {
    const error = await failure({ BROWSER_CHROME_SHA256: "0".repeat(64) });
    expect(error.code).toBe("checksum_mismatch");
    expect(error.message).toContain(sha256);
    expect(error.message).toContain("BROWSER_CHROME_SHA256");
    expect(installed()).toBe(false);
    expect(existsSync(part())).toBe(false);
    expect(server.requests).toHaveLength(1);
  });

  test("an unchecked installation is not used once a checksum is demanded", async () => {
    await resolve();
    const error = await failure({ BROWSER_CHROME_SHA256: "0".repeat(64) });
    expect(error.code).toBe("checksum_mismatch");
    // The one that was there stays usable for those who did not ask.
    expect((await resolve()).source).toBe("cache");
  });

  test("a damaged installation is replaced", async () => {
    const { path } = (await resolve()) as { path: string };
    writeFileSync(path, "");
    expect((await resolve()).source).toBe("download");
    expect(readFileSync(path, "utf8")).toContain("#!/bin/sh");
    expect(readdirSync(join(cache.path, "chrome"))).toEqual([`${TEST_PLATFORM}-${TEST_VERSION}`]);
  });

  test("goes on after broken connections and passing server errors", async () => {
    server.faults.push({ kind: "cut", afterBytes: 100_000 }, { kind: "status", status: 503 });
    expect((await resolve({ BROWSER_CHROME_SHA256: sha256 })).source).toBe("download");
    expect(server.requests).toHaveLength(3);
  });

  test("begins again when the file on the server has changed meanwhile", async () => {
    server.faults.push({ kind: "stall", afterBytes: 100_000 });
    expect((await failure({ BROWSER_DOWNLOAD_TIMEOUT_SECS: "0.5" })).code).toBe("download_timeout");
    expect(existsSync(part())).toBe(true);
    server.file = makeChromeZip(TEST_PLATFORM, TEST_VERSION, 300_000);
    server.etag = '"two"';
    const sum = new Bun.CryptoHasher("sha256").update(server.file).digest("hex");
    expect((await resolve({ BROWSER_CHROME_SHA256: sum })).source).toBe("download");
  });

  test("a continued file with a wrong checksum is fetched once more from the start", async () => {
    server.faults.push({ kind: "stall", afterBytes: 100_000 });
    await failure({ BROWSER_DOWNLOAD_TIMEOUT_SECS: "0.5" });
    const spoiled = readFileSync(part());
    writeFileSync(part(), spoiled.fill(0));
    server.requests.length = 0;
    expect((await resolve({ BROWSER_CHROME_SHA256: sha256 })).source).toBe("download");
    expect(server.requests.map(({ range }) => range !== null)).toEqual([true, false]);
  });

  test("a timeout keeps what arrived, and the next run continues it", async () => {
    server.faults.push({ kind: "stall", afterBytes: 200_000 });
    const error = await failure({ BROWSER_DOWNLOAD_TIMEOUT_SECS: "0.5" });
    expect(error.code).toBe("download_timeout");
    expect(error.message).toContain("BROWSER_DOWNLOAD_TIMEOUT_SECS");
    const keptBytes = readFileSync(part()).length;
    expect(keptBytes).toBeGreaterThan(0);
    expect((await resolve({ BROWSER_CHROME_SHA256: sha256 })).source).toBe("download");
    expect(server.requests.at(-1)?.range).toBe(`bytes=${keptBytes}-`);
  });

  test("follows redirects, and sends a mirror's credentials to that mirror only", async () => {
    const other = await startFileServer(zip);
    try {
      server.faults.push({ kind: "redirect", location: `${other.url}/elsewhere.zip` });
      const mirror = server.url.replace("http://", "http://ann:s%20ecret@");
      expect((await resolve({ BROWSER_CHROME_MIRROR: `${mirror}/` })).source).toBe("download");
      expect(server.requests[0]?.authorization).toBe(`Basic ${btoa("ann:s ecret")}`);
      expect(other.requests).toEqual([{ path: "/elsewhere.zip", range: null, authorization: null }]);
    } finally {
      await other.close();
    }
  });

  test("says what the server said, without credentials", async () => {
    server.faults.push({ kind: "status", status: 404 });
    const error = await failure({
      BROWSER_CHROME_MIRROR: server.url.replace("http://", "http://ann:secret@"),
    });
    expect(error.code).toBe("download_failed");
    expect(error.message).toContain("404");
    expect(error.message).toContain("BROWSER_CHROME_MIRROR");
    expect(error.message).not.toContain("secret");
    expect(server.requests).toHaveLength(1);
  });

  test("refuses what is not a Chrome zip", async () => {
    server.file = Buffer.from("<html>login required</html>".repeat(100));
    expect((await failure()).code).toBe("archive_invalid");
    server.file = makeChromeZip("mac-arm64", TEST_VERSION);
    const error = await failure();
    expect(error.code).toBe("archive_invalid");
    expect(error.message).toContain("chrome-linux64/chrome");
    expect(installed()).toBe(false);
  });

  test("a cache that cannot be used says so", async () => {
    const file = join(cache.path, "file");
    writeFileSync(file, "");
    const error = await failure({ BROWSER_CACHE_DIR: file });
    expect(error.code).toBe("cache_unusable");
    expect(error.message).toContain("BROWSER_CACHE_DIR");
  });
});
