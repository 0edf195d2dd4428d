import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { prepare } from "../../bench/board/prepare.ts";
import { startServer, stop } from "../../bench/lib/processes.ts";
import { describedSettings } from "../../packages/gateway/src/config.ts";

const ROOT = join(import.meta.dir, "../..");
const FOLDER = join(ROOT, "bench/board/model-gateway");
const definition = JSON.parse(readFileSync(join(FOLDER, "definition.json"), "utf8"));
const lines = (file: string) =>
  readFileSync(join(FOLDER, file), "utf8")
    .split("\n")
    .filter((line) => line && !line.startsWith("#"));
const env = Object.fromEntries(lines("env").map((line) => line.split("=") as [string, string]));

/** What the board's harness takes; it refuses a definition with anything else. */
const FIELDS =
  "name display lang class repo port path model egress_models auth headers runtime egress matrix matrix_note untestable untestable_note cell_paths config egress_headers constants config_files launch";
const AXES = ["openai", "openai-responses", "anthropic", "gemini", "cohere", "bedrock"];
const REASONS = ["required_to_boot", "upstream_to_mock", "exposes_ingress", "rig_binding"];

test("the definition has only what the board takes, and its files are there", () => {
  expect(Object.keys(definition).filter((field) => !FIELDS.split(" ").includes(field))).toEqual([]);
  for (const field of ["name", "display", "lang", "class", "repo", "path", "model", "auth"])
    expect([field, definition[field]]).toEqual([field, expect.stringMatching(/^[^$]+$/)]);
  expect(definition.matrix).toHaveLength(AXES.length);
  for (const row of definition.matrix) expect(row).toMatch(/^[01]{6}$/);
  expect(definition.egress.every((name: string) => AXES.includes(name))).toBe(true);
  const { build, binary } = definition.launch;
  expect(statSync(join(FOLDER, build)).mode & 0o111).toBeGreaterThan(0);
  expect(readFileSync(join(FOLDER, build), "utf8")).toContain(`--outfile ${binary[0].slice("src/".length)}`);
  expect(binary[0]).toContain(definition.runtime.proc_match);
});

test("each setting that it names exists, and has its reason", () => {
  const known = describedSettings().map(({ name }) => name);
  const names = Object.keys(env);
  expect(names.filter((name) => !known.includes(name))).toEqual([]);
  expect(definition.config.map(({ key }: { key: string }) => key).sort()).toEqual(names.sort());
  for (const { reason } of definition.config) expect(REASONS).toContain(reason);
  expect(
    lines("why")
      .map((line) => line.split(/\s+/)[0]!)
      .sort(),
  ).toEqual(names.sort());
});

let upstream: { pid: number; port: number };
let asked: string | undefined;
/** In front of the upstream, as the board's mock: it lists the same models to all, and notes what it is asked for. */
const mock = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/v1/models") return Response.json({ object: "list", data: [{ id: "gpt-4o-mini" }] });
    if (request.method === "POST") asked = pathname;
    const body = request.method === "POST" ? await request.text() : undefined;
    return fetch(`http://127.0.0.1:${upstream.port}${pathname}`, { method: request.method, body });
  },
});
let served: Bun.Subprocess;
let url: string;
const folder = mkdtempSync(join(tmpdir(), "board-"));

beforeAll(async () => {
  cpSync(FOLDER, folder, { recursive: true });
  upstream = await startServer("upstream.ts");
  await prepare(folder, mock.port);
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const given: Record<string, string> = { GW_PORT: String(port), NCORE: "2", GW_DIR: folder };
  const settings = Object.fromEntries(
    Object.entries(env).map(([name, value]) => [
      name,
      value.replace(/\{(\w+)\}/g, (_, placeholder) => given[placeholder]!),
    ]),
  );
  served = Bun.spawn(["deploy/model-gateway", ...definition.launch.args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH!, HOME: folder, ...settings },
    stdout: "ignore",
    stderr: "ignore",
  });
  await until("it listens", () =>
    fetch(`${url}/v1/health`).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
}, 60_000);
afterAll(async () => {
  served.kill();
  await served.exited;
  await stop(upstream.pid);
  await mock.stop(true);
  rmSync(folder, { recursive: true, force: true });
});

const content = "hi";
const INGRESS: Record<string, { path: string; body: object; answer: RegExp }> = {
  openai: {
    path: definition.path,
    body: { messages: [{ role: "user", content }] },
    answer: /"object":\s*"chat\.completion"/,
  },
  "openai-responses": { path: "/v1/responses", body: { input: content }, answer: /"object":\s*"response"/ },
  anthropic: {
    path: "/v1/messages",
    body: { max_tokens: 16, messages: [{ role: "user", content }] },
    answer: /"type":\s*"message"/,
  },
};
const ASKED: Record<string, string> = {
  openai: "/v1/chat/completions",
  "openai-responses": "/v1/responses",
  anthropic: "/v1/messages",
  gemini: `/v1beta/models/${definition.egress_models.gemini}:generateContent`,
};
const cells = AXES.flatMap((ingress, row) =>
  AXES.filter((_, column) => definition.matrix[row][column] === "1").map((egress) => [ingress, egress]),
);

test.each(cells)("%s to %s is served as it says", async (ingress, egress) => {
  const { path, body, answer } = INGRESS[ingress!]!;
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${definition.auth}` },
    body: JSON.stringify({ model: definition.egress_models[egress!], ...body }),
  });
  const text = await response.text();
  expect([response.status, text]).toEqual([200, expect.stringMatching(answer)]);
  expect(text).toContain("word word");
  expect(asked).toBe(ASKED[egress!]!);
});
