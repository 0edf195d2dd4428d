import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import catalogue from "@model-gateway/client/node-models.json" with { type: "json" };
import type { GpuReport } from "@model-gateway/protocol/agent.ts";
import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { HELP, readSettings, tunnelUrl } from "../src/args.ts";
import { parseConfig } from "../src/config.ts";
import { chooseGpus, planModel, renderLaunch } from "../src/engines/plan.ts";
import { findFreePort } from "../src/engines/ports.ts";
import { safeFolderName } from "../src/folder-name.ts";
import { describeDialFailure } from "../src/link.ts";
import { backoffMs, jittered } from "../src/time.ts";

const dir = mkdtempSync(join(tmpdir(), "settings-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const config = (toml: string) => parseConfig(toml, "agent.toml");
const given = {
  model_id: "m",
  model_path: "/w/m",
  port: "20001",
  bind: "127.0.0.1",
  api_key: "secret",
  data_dir: "/data",
  gpus: [0, 1].map((index) => ({ index, memory_total_mb: 80_000, memory_free_mb: 80_000 }) as GpuReport),
};

describe("the configuration file", () => {
  test.each([
    ["port = 1", "agent.toml: Unrecognized key"],
    ["gateway = [", "agent.toml is not valid TOML, line 1"],
    ['# here\nname = "n"\n\n[models.x\nengine = "vllm"\n', "not valid TOML, line 4: Expected ']'"],
    [
      'files = [\n  "a",\n  "b"\n]\n\n# twice\nname = "a"\nname = "b"',
      "not valid TOML, line 8: Cannot redefine",
    ],
    ['name = "n"\nports = [\n  1,\n  oops\n]\nhost = "h"', "not valid TOML, line 2"],
    [
      '[engines.mine]\ncommand = ["run", "{nonsense}"]',
      "engines.mine.command.1: unknown variable {nonsense}; there are {model_id}",
    ],
    ["[engines.mine]\ncommand = []", "engines.mine.command"],
    ['[models."../x"]', "models.../x: use owner/name"],
    [
      '[models.x]\nengine = "none"',
      'models."x".engine: no engine "none"; there are llama-cpp, vllm, sglang, ollama',
    ],
    ['default_engine = "none"', 'default_engine: no engine "none"'],
    ['default_engine = "constructor"', 'default_engine: no engine "constructor"'],
    [
      '[models.x]\nfiles = [{ url = "http://h/a/w.bin" }, { url = "http://h/b/w.bin" }]',
      'models.x.files: two are called "w.bin"; give each its own name',
    ],
    ['[models.x]\nurl = "http://h/%zz"', "models.x.url: an http:// or https:// URL is expected"],
    ['[models.x]\nurl = "file:///etc/passwd"', "models.x.url: an http:// or https:// URL is expected"],
    ['[models.x]\nurl = "http://h/a"\nhub = "a/b"', "models.x: give one of hub, url, files, path"],
    ['[models.x]\nurl = "http://h/a"\nsha256 = "12"', "models.x.sha256: 64 hex digits"],
    ["ports = [30, 20]", "ports: the first port must not be above the last"],
  ])("%j is refused by name", (toml, message) => {
    expect(() => config(toml)).toThrow(message);
  });

  test("needs nothing: the usual engines are there", () => {
    const plan = planModel("acme/model", config(""));
    expect(plan).toMatchObject({
      engineName: "vllm",
      usesApiKey: true,
      source: { kind: "hub", repo: "acme/model", revision: "main", format: "snapshot" },
    });
    const { command, env } = renderLaunch(plan, { ...given, model_id: "acme/model" });
    expect(command.join(" ")).toBe(
      "vllm serve /w/m --served-model-name acme/model --host 127.0.0.1 --port 20001 --tensor-parallel-size 2",
    );
    expect(env).toEqual({ VLLM_API_KEY: "secret" });
  });

  test("knows a model by what is listed, not by what every object has", () => {
    const closed = config("allow_unlisted = false");
    expect(() => planModel("constructor", closed)).toThrow("constructor is not listed on this node");
  });

  test("gives models their engine, weights, arguments and GPUs", () => {
    const settings = config(`
      [models.chat]
      engine = "llama-cpp"
      hub = "acme/model-GGUF:Q8_0"
      args = ["--ctx-size", "8192", "--json", '{"a": 1}']
      env = { EXTRA = "{data_dir}/x" }
      gpus = [1, 3]
    `);
    const plan = planModel("chat", settings);
    expect(plan.source).toMatchObject({ repo: "acme/model-GGUF", variant: "Q8_0", format: "gguf" });
    const launch = renderLaunch(plan, given);
    expect(launch.command.slice(-4)).toEqual(["--ctx-size", "8192", "--json", '{"a": 1}']);
    expect(launch.env).toEqual({ CUDA_VISIBLE_DEVICES: "1,3", LLAMA_API_KEY: "secret", EXTRA: "/data/x" });
  });

  test("an engine that fetches its own models takes any id; others must know where the weights are", () => {
    const ollama = config('default_engine = "ollama"');
    expect(planModel("acme/model:Q4_K_M", ollama).engineName).toBe("ollama");
    const plan = planModel("llama3.2:3b", ollama);
    expect(plan.source).toBeNull();
    const launch = renderLaunch(plan, { ...given, model_id: "llama3.2:3b" });
    expect(launch.afterStart).toEqual([["ollama", "pull", "llama3.2:3b"]]);
    expect(launch.env.OLLAMA_HOST).toBe("127.0.0.1:20001");
    expect(() => planModel("llama3.2:3b", config(""))).toThrow("where are the weights of llama3.2:3b?");
    expect(() => planModel("a/b", config("allow_unlisted = false"))).toThrow("not listed on this node");
    const unsafe = config('[[models.x.files]]\nurl = "http://h/a"\nname = "../../a"');
    expect(() => planModel("x", unsafe)).toThrow("leaves the weights folder");
  });

  test("gpu_count takes the GPUs with the most free memory", () => {
    const gpu = (index: number, memory_free_mb: number | null) => ({ index, memory_free_mb }) as GpuReport;
    const { entry } = planModel("x", config('[models.x]\nhub = "a/b"\ngpu_count = 2'));
    expect(chooseGpus(entry, [gpu(0, 10), gpu(1, 90), gpu(2, null), gpu(3, 50)])).toEqual([1, 3]);
    expect(() => chooseGpus(entry, [gpu(0, 10)])).toThrow("this node sees 1 GPUs");
  });
});

describe("flags and environment", () => {
  const env = { AGENT_GATEWAY: "wss://from-env", AGENT_TOKEN: "env-token" };

  test("flags win over the environment, that over the file", () => {
    const file = join(dir, "agent.toml");
    writeFileSync(
      file,
      'gateway = "ws://file"\ntoken = "file-token"\nname = "file-name"\ndata_dir = "/file"',
    );
    const flagToken = join(dir, "flag-token");
    writeFileSync(flagToken, "flag-token\n");
    const flags = [
      "--gateway",
      "wss://flag:9",
      "--token-file",
      flagToken,
      "--data-dir",
      "/flag",
      "--config",
      file,
    ];
    expect(readSettings(flags, env)).toMatchObject({
      url: "wss://flag:9/ws/agent",
      token: "flag-token",
      dataDir: "/flag",
      name: "file-name",
    });
    expect(readSettings(["--config", file], env)).toMatchObject({
      url: "wss://from-env/ws/agent",
      token: "env-token",
      dataDir: "/file",
    });
    expect(readSettings(["--config", file], {})).toMatchObject({
      url: "ws://file/ws/agent",
      token: "file-token",
    });
  });

  test("engines are open to others only when a host is advertised", () => {
    const { bind, host, direct } = readSettings([], env)!;
    expect([bind, direct]).toEqual(["127.0.0.1", false]);
    expect(host.length).toBeGreaterThan(0);
    expect(readSettings(["--host", "10.0.0.5"], env)).toMatchObject({
      bind: "0.0.0.0",
      host: "10.0.0.5",
      direct: true,
    });
    expect(readSettings(["--gateway", "ws://localhost:8080"], env)).toMatchObject({
      bind: "127.0.0.1",
      host: "127.0.0.1",
      direct: true,
    });
  });

  test("what is missing or wrong is said with the way out; help opens with an example", () => {
    expect(() => readSettings([], {})).toThrow("no gateway given: --gateway wss://…, or AGENT_GATEWAY");
    expect(() => readSettings(["--gateway", "ws://h"], {})).toThrow("no token given");
    expect(() => readSettings(["--gatway", "ws://h"], {})).toThrow("--gatway");
    expect(() => readSettings(["--config", join(dir, "none")], env)).toThrow(
      "configuration file cannot be read",
    );
    expect(() => tunnelUrl("gateway.example.com")).toThrow("is no URL");
    expect(() => tunnelUrl("ftp://h")).toThrow("use ws:// or wss://");
    expect(tunnelUrl("https://h/base/").href).toBe("wss://h/base/ws/agent");
    expect(tunnelUrl("ws://h/ws/agent").href).toBe("ws://h/ws/agent");
    for (const host of ["http://10.0.0.5", "10.0.0.5:80", "h/latest?x=", "me@h", "a b", "169.254.169.254"])
      expect(() => readSettings(["--host", host], env)).toThrow("--host: ");
    for (const host of ["10.0.0.5", "gpu-1.lan", "gpu_1", "fd00::5", "[fd00::5]", "GPU1"])
      expect(readSettings(["--host", host], env)).toMatchObject({ host, direct: true });
    expect(() => tunnelUrl("wss://me:secret@h")).toThrow("leave out user, password and query");
    expect(() => tunnelUrl("wss://h/?token=secret")).toThrow("leave out user, password and query");
    expect(() => readSettings([], { ...env, AGENT_TOKEN: "two words" })).toThrow(
      "the token is no token: one word",
    );
    expect(() => readSettings(["--token", "secret"], env)).toThrow("use AGENT_TOKEN or --token-file");
    const file = join(dir, "empty.toml");
    writeFileSync(join(dir, "empty-token"), "\n");
    writeFileSync(file, `token_file = "${dir}/empty-token"`);
    expect(() => readSettings(["--gateway", "ws://h", "--config", file], {})).toThrow(
      `what ${dir}/empty-token holds is no token`,
    );
    expect(readSettings([], { ...env, AGENT_DATA_DIR: "" })?.dataDir).toEndWith("/model-agent");
    expect(readSettings(["--help"], {})).toBeNull();
    expect(HELP).toStartWith("Example:\n  npm run agent -- --gateway wss://");
  });

  test("a failed dial is explained", () => {
    const explain = (message: string, code?: string) => {
      const error = Object.assign(new Error(message), { code });
      return describeDialFailure({ message, error } as ErrorEvent, "wss://gw.example.com/ws/agent");
    };
    expect(explain("Expected 101 status code: 401")).toContain("refused the token");
    expect(explain("Expected 101 status code: 404")).toContain("no agent tunnel at this address");
    expect(explain("Expected 101 status code: 502")).toBe(
      "gw.example.com answered HTTP 502 instead of opening the tunnel",
    );
    expect(explain("x", "ENOTFOUND")).toContain("not known (DNS)");
    expect(explain("TLS handshake failed", "EPROTO")).toContain("does not speak TLS here");
    expect(explain("WebSocket connection to 'wss://x/' failed: odd")).toEndWith("cannot be reached: odd");
  });
});

test("model ids stay inside their alphabet, and their folders apart", () => {
  for (const id of ["m", "acme/model", "llama3.2:3b", "a/b/c/d", "acme/m:Q4_K_M", "m@v1+x"])
    expect(ModelId.safeParse(id).success).toBe(true);
  for (const id of [
    "",
    "/m",
    "m/",
    "a//b",
    "../m",
    "a/../b",
    "-m",
    "m ",
    "m\n",
    "m;ls",
    "$(m)",
    "a/b/c/d/e",
    "m".repeat(129),
  ])
    expect(ModelId.safeParse(id).success).toBe(false);
  expect(safeFolderName("a/b")).not.toBe(safeFolderName("a-b"));
  expect(safeFolderName("../../x")).not.toContain("/");
});

test("ports come from the range, are not given twice, and keep their place", async () => {
  const first = await findFreePort({ host: "127.0.0.1", taken: new Set() });
  const range = [first, first + 1] as const;
  expect(await findFreePort({ host: "127.0.0.1", range, taken: new Set() })).toBe(first);
  expect(await findFreePort({ host: "127.0.0.1", preferred: first, taken: new Set() })).toBe(first);
  const busy = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: () => undefined } });
  const options = { host: "127.0.0.1", range: [busy.port, busy.port] as const, taken: new Set<number>() };
  await findFreePort(options).then(
    () => expect.unreachable(),
    (error: Error) => expect(error.message).toContain('widen "ports"'),
  );
  busy.stop();
});

test("delays double up to their bound, and are spread", () => {
  const bounds = { initialMs: 1000, maxMs: 30_000 };
  expect([1, 2, 3, 6, 100].map((attempt) => backoffMs(attempt, bounds))).toEqual([
    1000, 2000, 4000, 30_000, 30_000,
  ]);
  expect([jittered(1000, () => 0), jittered(1000, () => 0.999)].map(Math.round)).toEqual([500, 1000]);
});

test("each model of the catalogue is one that a node knows how to fetch and start", () => {
  const defaults = config("");
  const ids = new Set<string>();
  for (const { name, context_tokens, variants } of catalogue.models) {
    expect([name.length > 0, context_tokens >= 4_096, variants.length > 0]).toEqual([true, true, true]);
    for (const { model_id, quantisation, size_gb } of variants) {
      expect(ModelId.safeParse(model_id).success).toBe(true);
      expect([ids.has(model_id), size_gb > 0]).toEqual([false, true]);
      ids.add(model_id);
      const isGguf = /^Q\d/.test(quantisation);
      const { engineName, source } = planModel(model_id, defaults);
      expect(engineName).toBe(isGguf ? "llama-cpp" : "vllm");
      expect(source).toMatchObject({ kind: "hub", variant: isGguf ? quantisation : null });
    }
    // A smaller quantisation comes after a larger one.
    const sizes = variants.map(({ size_gb }) => size_gb);
    expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
  }
});
