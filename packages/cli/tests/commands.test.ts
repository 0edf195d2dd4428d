import { afterAll, beforeAll, expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { callOf } from "../src/called.ts";
import { openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let shell: Shell;
beforeAll(async () => {
  gateway = await bootGateway();
  await gateway.signIn("operator");
  shell = openShell({ MODEL_GATEWAY_URL: gateway.url });
});
afterAll(async () => {
  shell.end();
  await gateway.stop();
});

test("help opens with examples, for the whole and for each command", async () => {
  const whole = await shell.run(["--help"]);
  expect(whole.out).toStartWith("  model-gateway serve");
  for (const name of ["serve", "doctor", "keys", "ledger", "completion"])
    expect(whole.out).toContain(`\n  ${name} `);
  const keys = await shell.run(["keys", "--help"]);
  expect(keys.out).toStartWith("  model-gateway keys\n");
  expect([whole.code, keys.code]).toEqual([0, 0]);
});

test("mistakes are named, on the error stream, with a code", async () => {
  const unknown = await shell.run(["kyes"]);
  expect([unknown.code, unknown.out]).toEqual([2, ""]);
  expect(unknown.err).toBe('model-gateway: there is no command "kyes"; did you mean "keys"?\n');
  expect((await shell.run(["zzz"])).err).toContain("model-gateway help lists them");
  expect((await shell.run(["keys", "--projet", "x"])).err).toContain('did you mean "--project"?');
  const option = await shell.run(["keys", "--colour"]);
  expect(option.code).toBe(2);
  expect(option.err).toContain("model-gateway keys --help");
  const action = await shell.run(["completion", "tcsh"]);
  expect(action.err).toContain("bash, zsh, fish");
  const nobody = await shell.run(["keys"], { env: { XDG_CONFIG_HOME: join(shell.dir, "nobody") } });
  expect(nobody.err).toContain("model-gateway login");
  const nowhere = await shell.run(["models", "--url", "http://127.0.0.1:1"]);
  expect(nowhere.err).toContain("cannot be reached");
});

test("login --register on a new service makes its administrator, whom nothing limits", async () => {
  const fresh = await bootGateway({ config: { registrationOpen: null } });
  try {
    const at = { env: { MODEL_GATEWAY_URL: fresh.url, XDG_CONFIG_HOME: join(shell.dir, "fresh") } };
    const email = "ada@example.com";
    const login = await shell.run(["login", "--register", "--email", email], { stdin: PASSWORD, ...at });
    expect(login.out).toContain(`as ${email}, an administrator`);
    expect((await shell.run(["users"], at)).out).toMatch(/ada@example\.com.*enterprise/);
  } finally {
    await fresh.stop();
  }
});

test("a login by pipe lasts, and keys are made, listed and revoked", async () => {
  const login = await shell.run(["login", "--email", "operator@example.com", "--json"], {
    stdin: `${PASSWORD}\n`,
  });
  expect(JSON.parse(login.out)).toMatchObject({ email: "operator@example.com", is_admin: true });
  expect(statSync(join(shell.dir, "config/model-gateway/session.json")).mode & 0o777).toBe(0o600);

  const made = await shell.run(["keys", "create", "laptop", "--project", "work"]);
  expect(made.out).toMatch(/^service-[0-9a-f-]{36}\n$/);
  expect(made.err).toContain("Shown once");
  const list = await shell.run(["keys"]);
  expect(list.out).toMatch(/laptop\s+service-[0-9a-f]{8}…\s+work\s+active/);
  expect(list.out).not.toContain(made.out.trim());
  expect((await shell.run(["keys", "revoke", "laptop"])).out).toContain("no longer works");
  const again = await shell.run(["keys", "revoke", "laptop"]);
  expect([again.code, again.err]).toEqual([
    1,
    "model-gateway keys: no active key is called laptop; model-gateway keys lists them\n",
  ]);
  for (const _ of ["one", "another"]) await shell.run(["keys", "create", "laptop"]);
  const ambiguous = await shell.run(["keys", "revoke", "laptop"]);
  expect([ambiguous.code, ambiguous.err]).toEqual([1, expect.stringContaining("2 active keys are called")]);
  const rows = JSON.parse((await shell.run(["--json", "keys"])).out) as { id: string; active: boolean }[];
  expect(rows.map(({ active }) => active)).toEqual([true, true, false]);
  for (const { id } of rows.slice(0, 2)) {
    expect(ambiguous.err).toContain(id);
    await shell.run(["keys", "revoke", id]);
  }
  expect((await shell.run(["whoami"])).out).toStartWith("operator@example.com, an administrator, at http");
});

test("a key's limits are given, changed one by one and taken away; what makes no sense is named", async () => {
  const made = await shell.run([
    "keys",
    "create",
    "ci",
    "--monthly-budget",
    "5",
    "--models",
    "a, b",
    "--expires",
    "2031-01-31",
    "--json",
  ]);
  expect(JSON.parse(made.out)).toMatchObject({
    monthly_budget_usd: 5,
    allowed_models: ["a", "b"],
    expires_at: "2031-01-31T00:00:00.000Z",
    requests_per_minute: null,
  });
  const changed = await shell.run(["keys", "update", "ci", "--rpm", "7", "--models", "none", "--json"]);
  expect(JSON.parse(changed.out)).toMatchObject({
    monthly_budget_usd: 5,
    allowed_models: null,
    requests_per_minute: 7,
  });
  expect((await shell.run(["keys"])).out).toMatch(/ci .*\$0\.00 of \$5\.00/);
  for (const [options, told, expected] of [
    [["--tpm", "many"], "--tpm must be a number", 2],
    [["--expires", "soon"], "--expires must be a date", 2],
    [["--total-budget=-1"], "keys: --total-budget: must be", 1],
    [["--group", "x"], "--group has no effect with update", 2],
    [[], "say what to change", 2],
  ] as const) {
    const { code, err } = await shell.run(["keys", "update", "ci", ...options]);
    expect(err).toContain(told);
    expect(code).toBe(expected);
  }
  await shell.run(["keys", "revoke", "ci"]);
});

test("on a terminal the password is asked for and not shown", async () => {
  const { code, out } = await shell.onTerminal(
    ["login"],
    [
      { after: "Email: ", text: "operator@example.com\r" },
      { after: "Password: ", text: `${PASSWORD}\r` },
    ],
  );
  expect(out).toContain("Signed in at");
  expect(out).not.toContain(PASSWORD);
  expect(code).toBe(0);
});

test("names cannot drive the terminal, and a reader that has seen enough ends it quietly", async () => {
  await shell.run(["keys", "create", "red\x1b[31m"]);
  const list = await shell.run(["keys"]);
  expect(list.out).toContain("red\ufffd[31m");
  expect(list.out).not.toContain("\x1b");
  const cli = join(import.meta.dir, "../src/main.ts");
  const piped = Bun.spawn(["sh", "-c", `${process.execPath} ${cli} --help | true`], {
    stderr: "pipe",
  });
  expect(await new Response(piped.stderr).text()).toBe("");
  expect(await piped.exited).toBe(0);
});

test("the wallet is shown", async () => {
  const wallet = await shell.run(["ledger"]);
  expect([wallet.code, wallet.out]).toEqual([0, "Balance: 0 points\nNo entries yet\n"]);
});

test("a signed-in administrator needs no admin token; a wrong one is not accepted", async () => {
  const bySession = await shell.run(["backends"]);
  expect(bySession.out).toContain("No backend is registered");
  for (const by of ["model", "user"])
    expect((await shell.run(["usage", "--by", by])).out).toBe("Nothing in this range\n");
  for (const wrong of [
    ["--since", "yesterday"],
    ["--limit", "0"],
    ["--by", "moon"],
    ["--url", "nowhere"],
  ])
    expect((await shell.run(["usage", ...wrong])).code).toBeGreaterThan(0);
  expect((await shell.run(["routes"])).out).toContain("No route yet");
  expect((await shell.run(["audit", "--action", "keys.revoke"])).out).toContain("operator@example.com");
  const wrong = await shell.run(["backends"], { env: { SERVICE_ADMIN_TOKEN: `${ADMIN_TOKEN}-not` } });
  expect([wrong.code, wrong.err]).toEqual([1, "model-gateway backends: the admin token is not accepted\n"]);
});

test("secrets come from a file or the environment, never from the command line", async () => {
  const file = join(shell.dir, "admin-token");
  writeFileSync(file, `${ADMIN_TOKEN}\n`, { mode: 0o600 });
  const accepted = [
    await shell.run(["backends", "--admin-token-file", file]),
    await shell.run(["backends"], { env: { SERVICE_ADMIN_TOKEN: ADMIN_TOKEN } }),
    await shell.run(["backends"], { env: { SERVICE_ADMIN_TOKEN_FILE: file } }),
  ];
  expect(accepted.map(({ code }) => code)).toEqual([0, 0, 0]);
  for (const [option, variable] of [
    ["key", "MODEL_GATEWAY_KEY"],
    ["admin-token", "SERVICE_ADMIN_TOKEN"],
    ["backend-key", "MODEL_GATEWAY_BACKEND_KEY"],
  ])
    for (const given of [[`--${option}`, "canary"], [`--${option}=canary`]]) {
      const { code, err } = await shell.run(["backends", ...given]);
      expect([code, err]).toEqual([
        2,
        `model-gateway backends: --${option} would show the secret to everyone on this machine: set ${variable}, or give --${option}-file <file>\n`,
      ]);
    }
  const missing = await shell.run(["backends", "--admin-token-file", `${file}-not`]);
  expect(missing.err).toContain("--admin-token-file: ENOENT");
});

test("hints are printed in the form that works where they are read", async () => {
  const path = "/usr/bin:/bin";
  const hint = async (env: Record<string, string>) =>
    (await shell.run(["keys", "--url", "http://127.0.0.1:9"], { env: { PATH: path, ...env } })).err;
  expect(await hint({ npm_command: "exec" })).toContain("run: npx --no model-gateway login");
  expect(await hint({})).toMatch(/run: \/\S+\/deploy\/model-gateway login/);
  expect(callOf({ npm_command: "exec" }, "/home/ada/.npm/_npx/1/lib/main.js")).toBe("model-gateway");
  expect(callOf({ PATH: path }, "/$bunfs/root/model-gateway")).toBe("model-gateway");
});
