import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { failure } from "@model-gateway/testing/failure.ts";
import {
  type FileServer,
  sendStart,
  sendStatus,
  sha256,
  startFileServer,
} from "@model-gateway/testing/file-server.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type DownloadOptions, downloadFile } from "../src/weights/download.ts";
import { chooseFiles, type HubSource, parseHubId, safeRelativePath } from "../src/weights/hub.ts";
import { type WeightsProgress, WeightsStore } from "../src/weights/store.ts";

let dir: string;
let server: FileServer;
const content = crypto.getRandomValues(new Uint8Array(60_000));

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "weights-"));
  server = await startFileServer();
});
afterEach(() => {
  server.stop();
  rmSync(dir, { recursive: true, force: true });
});

const download = (overrides: Partial<DownloadOptions> = {}) =>
  downloadFile({
    url: `${server.url}/model.bin`,
    destination: join(dir, "model.bin"),
    sha256: sha256(content),
    sizeBytes: null,
    token: null,
    signal: new AbortController().signal,
    onBytes: () => undefined,
    retryDelayMs: 5,
    ...overrides,
  });
const etag = `"${sha256(content)}"`;
/** Promises some bytes, sends a few, and goes silent. */
const stall = (promisedBytes: number) => (response: ServerResponse) =>
  sendStart(response, { bytes: content.subarray(0, 100), promisedBytes, etag });
const onDisk = () => readFileSync(join(dir, "model.bin"));

test("a file arrives whole, and only under its final name when it is", async () => {
  server.put("/model.bin", content);
  const seen: number[] = [];
  await download({ onBytes: (done) => seen.push(done) });
  expect(Buffer.compare(onDisk(), content)).toBe(0);
  expect(seen.at(-1)).toBe(content.length);
  expect(existsSync(join(dir, "model.bin.part"))).toBe(false);
});

test("a broken connection is resumed where it stopped", async () => {
  server.put("/model.bin", content);
  server.intercept = (response) => {
    server.intercept = null;
    const bytes = content.subarray(0, 20_000);
    const part = join(dir, "model.bin.part");
    const isKept = () => statSync(part, { throwIfNoEntry: false })?.size === bytes.length;
    void until("these are kept", isKept).then(() => response.destroy());
    return sendStart(response, { bytes, promisedBytes: content.length, etag });
  };
  await download();
  expect(Buffer.compare(onDisk(), content)).toBe(0);
  expect(server.requests.map(({ range }) => range)).toEqual([null, "bytes=20000-"]);
});

test("a part from an earlier run is resumed, unless the file has changed since", async () => {
  server.put("/model.bin", content);
  const note = { url: `${server.url}/model.bin`, validator: `"${sha256(content)}"` };
  writeFileSync(join(dir, "model.bin.part"), content.subarray(0, 30_000));
  writeFileSync(join(dir, "model.bin.part.json"), JSON.stringify(note));
  await download();
  expect(server.requests.at(-1)?.range).toBe("bytes=30000-");
  expect(Buffer.compare(onDisk(), content)).toBe(0);

  rmSync(join(dir, "model.bin"));
  writeFileSync(join(dir, "model.bin.part"), new Uint8Array(30_000));
  writeFileSync(join(dir, "model.bin.part.json"), JSON.stringify({ ...note, validator: '"older"' }));
  await download({ sha256: null });
  expect(Buffer.compare(onDisk(), content)).toBe(0);
});

test("what a server that minds no If-Range adds of another file is not joined to the part", async () => {
  const newer = crypto.getRandomValues(new Uint8Array(60_000));
  server.put("/model.bin", newer);
  writeFileSync(join(dir, "model.bin.part"), content.subarray(0, 30_000));
  writeFileSync(
    join(dir, "model.bin.part.json"),
    JSON.stringify({ url: `${server.url}/model.bin`, validator: etag }),
  );
  server.intercept = (response) => {
    server.intercept = null;
    const headers = { etag: '"newer"', "content-range": "bytes 30000-59999/60000", "content-length": 30_000 };
    response.writeHead(206, headers).end(newer.subarray(30_000));
    return true;
  };
  await download({ sha256: null });
  expect(server.requests.map(({ range }) => range)).toEqual(["bytes=30000-", null]);
  expect(Buffer.compare(onDisk(), newer)).toBe(0);
});

test("a server that asks to be left alone for a while is left alone", async () => {
  server.put("/model.bin", content);
  let refusedAtMs = 0;
  server.intercept = (response) => {
    server.intercept = null;
    refusedAtMs = Date.now();
    return sendStatus(response, 429, { "retry-after": "1" });
  };
  await download();
  expect(Date.now() - refusedAtMs).toBeGreaterThanOrEqual(990);
  expect(Buffer.compare(onDisk(), content)).toBe(0);
});

test("what is said of an address leaves its secrets out", async () => {
  const url = `${server.url.replace("//", "//me:hidden@")}/gone.bin?signature=hidden`;
  const error = await failure(download({ url }));
  expect(error).toMatchObject({
    message: expect.stringContaining(`${server.url}/gone.bin failed: HTTP 404`),
  });
  expect(String(error)).not.toContain("hidden");

  const mirror = "http://me:hidden@127.0.0.1:1";
  const access = { mirror, token: null, retryDelayMs: 5 };
  const unreachable = await failure(obtain(new WeightsStore({ dir, access })));
  expect(String(unreachable)).toContain("the hub http://127.0.0.1:1 cannot be reached");
  expect(String(unreachable)).not.toContain("hidden");
});

test("a part that turns out to be wrong gets one fresh start; a wrong file is refused", async () => {
  server.put("/model.bin", content, { etag: null });
  writeFileSync(join(dir, "model.bin.part"), new Uint8Array(30_000));
  writeFileSync(
    join(dir, "model.bin.part.json"),
    JSON.stringify({ url: `${server.url}/model.bin`, validator: null }),
  );
  await download();
  expect(Buffer.compare(onDisk(), content)).toBe(0);

  const wrong = await failure(download({ destination: join(dir, "other.bin"), sha256: "0".repeat(64) }));
  expect(wrong).toMatchObject({ message: expect.stringContaining("checksum mismatch") });
  expect(existsSync(join(dir, "other.bin"))).toBe(false);
});

test("errors say what is wrong: not found, refused, no space, other size", async () => {
  const message = async (overrides: Partial<DownloadOptions>) => {
    const error = await failure(download(overrides));
    return error instanceof Error ? error.message : "";
  };
  expect(await message({})).toContain("HTTP 404: no such file");
  server.intercept = (response) => sendStatus(response, 403);
  expect(await message({})).toContain("HTTP 403: access refused");
  server.intercept = stall(2 ** 52);
  expect(await message({})).toMatch(/disk full: 4096\.0 TiB are needed in .*, .* are free/);
  server.intercept = null;
  server.put("/model.bin", content);
  expect(await message({ sizeBytes: 17 })).toContain("60000 bytes, its list entry says 17");
});

test("a server that fails for a while, or goes silent, is tried again; a hopeless one is given up", async () => {
  server.put("/model.bin", content);
  let failures = 2;
  server.intercept = (response) => failures-- > 0 && sendStatus(response, 503);
  await download();
  expect(Buffer.compare(onDisk(), content)).toBe(0);

  let silent = true;
  server.intercept = (response) => {
    if (!silent) return false;
    silent = false;
    return stall(60_000)(response);
  };
  await download({ destination: join(dir, "second.bin"), stallTimeoutMs: 500 });
  expect(existsSync(join(dir, "second.bin"))).toBe(true);

  server.intercept = (response) => sendStatus(response, 500);
  expect(await failure(download({ destination: join(dir, "third.bin") }))).toMatchObject({
    message: expect.stringContaining("HTTP 500"),
  });
});

test("a token goes to its own origin and not where that redirects", async () => {
  const elsewhere = await startFileServer();
  elsewhere.put("/blob", content);
  server.intercept = (response) => sendStatus(response, 302, { location: `${elsewhere.url}/blob` });
  await download({ token: "secret" });
  expect(server.requests[0]?.authorization).toBe("Bearer secret");
  expect(elsewhere.requests[0]?.authorization).toBeNull();
  elsewhere.stop();
});

test("an abort stops a download and keeps the part for later", async () => {
  const abort = new AbortController();
  server.intercept = stall(60_000);
  const outcome = failure(download({ signal: abort.signal }));
  const part = join(dir, "model.bin.part");
  await until("bytes arrive", () => existsSync(part) && readFileSync(part).length > 0);
  abort.abort(new Error("stopped"));
  expect(await outcome).toMatchObject({ message: "stopped" });
  expect(readFileSync(part).length).toBeGreaterThan(0);
  expect(existsSync(join(dir, "model.bin"))).toBe(false);
});

const source = (overrides: Partial<HubSource> = {}): HubSource => ({
  kind: "hub",
  repo: "acme/tiny",
  revision: "main",
  variant: null,
  include: null,
  format: "snapshot",
  ...overrides,
});
const obtain = (store: WeightsStore, from = source(), seen: WeightsProgress[] = []) =>
  store.obtain(from, { signal: new AbortController().signal, onProgress: (progress) => seen.push(progress) });

test("a hub repository is fetched once, for everyone who asks, and found again offline", async () => {
  server.putRepository("acme/tiny", {
    "config.json": new TextEncoder().encode("{}"),
    "model.safetensors": content,
    "pytorch_model.bin": content,
    "README.md": new Uint8Array(10),
  });
  const access = { mirror: server.url, token: "hub-token" };
  const store = new WeightsStore({ dir, access });
  const seen: WeightsProgress[] = [];
  const paths = await Promise.all([obtain(store, source(), seen), obtain(store), obtain(store)]);
  expect(new Set(paths).size).toBe(1);
  expect(readFileSync(join(paths[0]!, "model.safetensors")).length).toBe(content.length);
  expect(existsSync(join(paths[0]!, "pytorch_model.bin"))).toBe(false);
  expect(server.requests.map(({ path }) => path)).toEqual([
    "/api/models/acme/tiny",
    "/acme/tiny/resolve/c0ffee00/config.json",
    "/acme/tiny/resolve/c0ffee00/model.safetensors",
  ]);
  expect(server.requests.every(({ authorization }) => authorization === "Bearer hub-token")).toBe(true);
  expect(seen.at(-1)).toEqual({ doneBytes: content.length + 2, totalBytes: content.length + 2 });

  server.stop();
  expect(await obtain(new WeightsStore({ dir, access }))).toBe(paths[0]!);
});

test("a hub that is busy for a while is asked again", async () => {
  server.putRepository("acme/tiny", { "model.safetensors": content });
  let refusals = 2;
  server.intercept = (response) => refusals-- > 0 && sendStatus(response, 429);
  const access = { mirror: server.url, token: null, retryDelayMs: 5 };
  expect(
    readFileSync(join(await obtain(new WeightsStore({ dir, access })), "model.safetensors")).length,
  ).toBe(content.length);
  server.intercept = (response) => sendStatus(response, 503);
  const hopeless = await failure(obtain(new WeightsStore({ dir, access }), source({ repo: "acme/other" })));
  expect(String(hopeless)).toContain("answered HTTP 503 for acme/other at main");
});

test("a folder is called after its source without showing the address", async () => {
  server.put("/model.bin", content);
  const store = new WeightsStore({ dir, access: { mirror: server.url, token: null } });
  const urls = ["a", "b"].map((signature) => `${server.url}/model.bin?signature=hidden-${signature}`);
  const paths = await Promise.all(
    urls.map((url) =>
      store.obtain(
        { kind: "files", files: [{ url, sha256: null, name: "model.bin" }] },
        { signal: new AbortController().signal, onProgress: () => undefined },
      ),
    ),
  );
  expect(new Set(paths).size).toBe(2);
  for (const path of paths) expect(path.slice(dir.length)).toMatch(/^\/model\.bin-[0-9a-f]{10}\/model\.bin$/);
});

test("a repository's own manifest.json is kept as it is", async () => {
  const manifest = new TextEncoder().encode('{"files": ["model.safetensors"]}');
  server.putRepository("acme/tiny", { "manifest.json": manifest, "model.safetensors": content });
  const access = { mirror: server.url, token: null };
  const path = await obtain(new WeightsStore({ dir, access }));
  expect(readFileSync(join(path, "manifest.json"), "utf8")).toBe('{"files": ["model.safetensors"]}');
});

test("whoever leaves does not stop the others", async () => {
  server.putRepository("acme/tiny", { "model.safetensors": content });
  const held = Promise.withResolvers<void>();
  server.intercept = (response, path) => {
    if (!path.includes("resolve")) return false;
    stall(content.length)(response);
    void held.promise.then(() => response.end(content.subarray(100)));
    return true;
  };
  const store = new WeightsStore({ dir, access: { mirror: server.url, token: null } });
  const leaver = new AbortController();
  const left = failure(store.obtain(source(), { signal: leaver.signal, onProgress: () => undefined }));
  const stays = obtain(store);
  await until("the download runs", () => server.requests.length === 2);
  leaver.abort(new Error("gone"));
  expect(await left).toMatchObject({ message: "gone" });
  held.resolve();
  expect(readFileSync(join(await stays, "model.safetensors")).length).toBe(content.length);
});

test("hub errors name the model, the hub and the way out", async () => {
  const store = new WeightsStore({ dir, access: { mirror: server.url, token: null } });
  expect(await failure(obtain(store))).toMatchObject({
    message: expect.stringMatching(
      /shows no model acme\/tiny at main \(HTTP 404\): check the id, and set an access/,
    ),
  });
});

test("GGUF files are chosen by variant, preference, or not at all", () => {
  const files = (...names: string[]) =>
    names.map((name) => ({ name, url: "", sha256: null, sizeBytes: null }));
  const pick = (names: string[], variant: string | null = null) =>
    chooseFiles(files(...names), source({ format: "gguf", variant })).map(({ name }) => name);
  expect(pick(["a.gguf", "README.md"])).toEqual(["a.gguf"]);
  expect(pick(["a-Q8_0.gguf", "a-Q4_K_M.gguf", "mmproj-a.gguf"])).toEqual(["a-Q4_K_M.gguf"]);
  expect(pick(["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "q8_0")).toEqual(["a-Q8_0.gguf"]);
  expect(pick(["q/a-Q4_K_M-00002-of-00002.gguf", "q/a-Q4_K_M-00001-of-00002.gguf", "a-Q2_K.gguf"])).toEqual([
    "q/a-Q4_K_M-00001-of-00002.gguf",
    "q/a-Q4_K_M-00002-of-00002.gguf",
  ]);
  expect(() => pick(["a-Q8_0.gguf", "a-Q6_K.gguf"])).toThrow("which GGUF of acme/tiny?");
  expect(() => pick(["model.safetensors"])).toThrow("no GGUF file");
  expect(
    chooseFiles(files("model-1.safetensors", "consolidated.safetensors"), source({})).map(({ name }) => name),
  ).toEqual(["model-1.safetensors"]);
  expect(
    chooseFiles(files("x/a.json", "b.txt"), source({ include: ["x/*.json"] })).map(({ name }) => name),
  ).toEqual(["x/a.json"]);
});

test("names from outside cannot leave their folder", () => {
  for (const name of ["../x", "/etc/passwd", "a/../../b", "", "a//b", "a\\b", "./a"])
    expect(safeRelativePath(name)).toBeNull();
  expect(safeRelativePath("a/b.gguf")).toBe("a/b.gguf");
  expect(parseHubId("acme/tiny:Q4_K_M")).toEqual({ repo: "acme/tiny", variant: "Q4_K_M" });
  for (const id of ["tiny", "a/b/c", "../b", "a/b:c:d"]) expect(parseHubId(id)).toBeNull();
});
