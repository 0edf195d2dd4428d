import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import manifest from "../../package.json" with { type: "json" };
import { RUNTIME_OPTIONS } from "../../packages/cli/src/service/runtime.ts";

const ROOT = join(import.meta.dir, "../..");

test("scripts need no shell: they run on Windows too", () => {
  for (const [name, script] of Object.entries(manifest.scripts))
    expect([name, script]).toEqual([name, expect.stringMatching(/^(exec )?(bun|biome) [\w ./=-]+$/)]);
});

test("SIGTERM reaches the service through npm start", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "npm-start-"));
  const child = Bun.spawn(["npm", "start"], {
    cwd: ROOT,
    env: {
      PATH: process.env.PATH!,
      HOME: dataDir,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_WARM_UP: "0",
    },
    stdout: "pipe",
    stderr: "pipe",
  });
  let said = "";
  const hear = async (stream: ReadableStream<Uint8Array>) => {
    for await (const chunk of stream) said += new TextDecoder().decode(chunk);
  };
  const heard = [hear(child.stdout), hear(child.stderr)];
  try {
    await until("npm start serves", () => said.includes("set up"));
    child.kill("SIGTERM");
    await child.exited;
    await Promise.all(heard);
    expect(said).toContain('"message":"draining","signal":"SIGTERM"');
  } finally {
    child.kill("SIGKILL");
    rmSync(dataDir, { recursive: true, force: true });
  }
});

test.if(process.platform === "linux")(
  "a full disk under the log, or a reader that is gone, ends no service",
  async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "full-log-"));
    const env = { PATH: process.env.PATH!, HOME: dataDir, SERVICE_DATA_DIR: dataDir };
    for (const redirect of ["2>/dev/full", "2> >(true) > >(true)"]) {
      const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
      const url = `http://127.0.0.1:${listener.port}`;
      listener.stop(true);
      const main = `exec ${process.execPath} packages/gateway/src/main.ts ${redirect}`;
      const child = Bun.spawn(["bash", "-c", main], {
        cwd: ROOT,
        env: { ...env, SERVICE_PORT: String(listener.port) },
      });
      try {
        const serves = () =>
          fetch(`${url}/healthz`).then(
            ({ ok }) => ok,
            () => false,
          );
        await until("it serves", serves);
        // It says in the log that it drains.
        child.kill("SIGTERM");
        expect(await child.exited).toBe(0);
      } finally {
        child.kill("SIGKILL");
      }
    }
    rmSync(dataDir, { recursive: true, force: true });
  },
);

test.each([
  ["npm start", ["scripts/start.ts"]],
  ["model-gateway serve", ["packages/cli/src/main.ts", "serve"]],
])("%s has the runtime's options", async (_, command) => {
  const {
    BUN_CONFIG_MAX_HTTP_REQUESTS: _read,
    MIMALLOC_PURGE_HOLES_MIN_INTERVAL: interval,
    ...options
  } = RUNTIME_OPTIONS;
  const started = Bun.spawn([process.execPath, ...command, "--version"], {
    cwd: ROOT,
    env: { PATH: process.env.PATH!, BUN_JSC_dumpOptions: "2", MIMALLOC_VERBOSE: "1" },
    stdout: "pipe",
    stderr: "pipe",
  });
  expect((await new Response(started.stdout).text()).trim()).toMatch(/^\d+\.\d+\.\d+$/);
  // Each start of the runtime lists its options: the first one without them.
  const listed = await new Response(started.stderr).text();
  const values = Object.keys(options).map((name) => {
    const all = [...listed.matchAll(new RegExp(`^ *${name.replace("BUN_JSC_", "")}=(\\w+)`, "gm"))];
    return [name, all.at(-1)![1]!.replace("true", "1")];
  });
  expect(Object.fromEntries(values)).toEqual(options);
  expect([...listed.matchAll(/'purge_holes_min_interval': (\d+)/g)].at(-1)![1]).toBe(interval);
});

test("who sets one of these options keeps that value", async () => {
  const started = Bun.spawn([process.execPath, "scripts/start.ts", "--version"], {
    cwd: ROOT,
    env: { PATH: process.env.PATH!, BUN_JSC_numberOfGCMarkers: "1", BUN_JSC_dumpOptions: "2" },
    stderr: "pipe",
  });
  const listed = await new Response(started.stderr).text();
  expect([...listed.matchAll(/numberOfGCMarkers=(\d+)/g)].map(([, value]) => value)).toEqual(["1", "1"]);
});

test("the launcher of the npm package gives the same options", async () => {
  const launcher = await Bun.file(join(ROOT, "scripts/packages/launcher.js")).text();
  for (const [name, value] of Object.entries(RUNTIME_OPTIONS))
    expect(launcher).toContain(`${name}: "${value}"`);
});
