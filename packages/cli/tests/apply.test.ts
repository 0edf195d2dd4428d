import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream, type Upstream } from "../../../tests/e2e/support/upstream.ts";
import { openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let upstream: Upstream;
let shell: Shell;
let operator: string;
beforeAll(async () => {
  upstream = startUpstream();
  gateway = await bootGateway({ config: { adminToken: null } });
  operator = await gateway.signIn("operator");
  // Nobody signs in by hand: this is how a container does it.
  shell = openShell({
    MODEL_GATEWAY_URL: gateway.url,
    MODEL_GATEWAY_EMAIL: "operator@example.com",
    MODEL_GATEWAY_PASSWORD: PASSWORD,
    RACK_KEY: "sk-rack-secret",
  });
});
afterAll(async () => {
  shell.end();
  await gateway.stop();
  upstream.stop();
});

const whole = () => `
backends:
  - name: rack
    type: external
    url: ${upstream.url}
    api_key: { env: RACK_KEY }
    headers: { x-team: blue, x-token: { file: ${join(shell.dir, "token")} } }
    models: [demo-chat]
routes:
  - name: assistant
    targets:
      - { model: demo-chat, backend: rack }
    begin_within_seconds: 10
prices:
  - { model: Demo-Chat, input_usd: 1, output_usd: 2, parts: { cached_input: 0.1 } }
tiers:
  - { name: free, monthly_usd_quota: 5, monthly_token_quota: null, rpm: 20 }
  - { name: gold, monthly_usd_quota: null, monthly_token_quota: null, rpm: 90 }
groups:
  - name: Analysts
    description: They analyse
    enforce_model_allowlist: true
    rpm_ceiling: 60
    monthly_refill: 500
    member_budget_usd: 2.5
    allowed_models: [demo-chat, assistant]
settings:
  - { name: SERVICE_NEW_ACCOUNT_TIER, value: gold }
  - { name: SERVICE_INVITATION_DAYS, value: "3" }
  - { name: SERVICE_API_RATE_LIMIT_RPM, value: null }
`;
const file = (content: string): string => {
  const path = join(shell.dir, "gateway.yaml");
  writeFileSync(path, content);
  return path;
};
const apply = (content: string, ...options: string[]) =>
  shell.run(["apply", "-f", file(content), ...options]);

test("a file is shown, applied, found in place, exported and changed", async () => {
  writeFileSync(join(shell.dir, "token"), "tok-secret\n");
  const dry = await apply(whole(), "--dry-run");
  expect(dry.err).toBe("");
  expect(dry.out.split("\n")).toEqual([
    "~ tier free",
    "    monthly_usd_quota: 1 → 5",
    "    monthly_token_quota: 100000 → null",
    "    rpm: 10 → 20",
    "+ tier gold",
    "+ backend rack",
    "+ price Demo-Chat",
    "+ route assistant",
    "+ group Analysts",
    "+ setting SERVICE_NEW_ACCOUNT_TIER",
    "+ setting SERVICE_INVITATION_DAYS",
    "8 changes; nothing was written",
    "",
  ]);
  expect((await apply(whole())).out).toContain("8 changes made");
  expect((await apply(whole())).out).toBe("Nothing to change\n");

  const exported = await shell.run(["export"]);
  expect(exported.out).not.toMatch(/sk-rack-secret|tok-secret|blue/);
  expect(exported.out).toContain("api_key:\n      env: RACK_API_KEY");
  const env = { RACK_API_KEY: "sk-rack-secret", RACK_X_TEAM: "blue", RACK_X_TOKEN: "tok-secret" };
  const again = await shell.run(["apply", "-f", file(exported.out)], { env });
  expect([again.err, again.out]).toEqual(["", "Nothing to change\n"]);

  const other = await shell.run(["apply", "-f", file(whole())], { env: { RACK_KEY: "sk-other" } });
  expect(other.out).toBe("~ backend rack\n    api_key: another secret\n1 change made\n");
  const at = new URL(upstream.url);
  Object.assign(at, { username: "rack", password: "in-url" });
  const moved = whole().replace(`url: ${upstream.url}`, "url: { env: RACK_URL }");
  const hidden = await shell.run(["apply", "-f", file(moved), "--dry-run"], { env: { RACK_URL: at.href } });
  expect(hidden.out).toContain("    url: another secret\n");
  expect(hidden.out + hidden.err).not.toContain("in-url");
  const fewer = whole().replace("allowed_models: [demo-chat, assistant]", "allowed_models: []");
  expect((await apply(fewer.replace("cached_input: 0.1", "cached_input: 0.2"))).out).toContain(
    'parts: {"cached_input":0.1} → {"cached_input":0.2}',
  );
  const gone = await apply("routes: []\n", "--prune");
  expect(gone.out).toBe("- route assistant\n1 change made\n");
});

test("a bad file changes nothing and names line and field", async () => {
  const before = (await shell.run(["export"])).out;
  const bad = async (content: string) => {
    const { code, err, out } = await apply(content);
    expect([code, out]).toEqual([1, ""]);
    return err.replaceAll(join(shell.dir, "gateway.yaml"), "gateway.yaml");
  };
  const all = await bad(`tiers:
  - { name: free, monthly_usd_quota: 9, monthly_token_quota: null, rpm: 0 }
  - { name: gold, monthly_usd_quota: -9, monthly_token_quota: null, rpm: 9 }
backends:
  - name: new
    ulr: http://localhost:1
  - name: other
    type: nonsense
  - { name: third, type: external, url: "ftp://x" }
prices:
  - model: m
    input_usd: 1
routes:
  - name: r
    targets: [{ model: m, wait: 3 }]
  - name: s
    targets: [{ model: m }]
  - name: s
    targets: [{ model: m }]
people: []
settings:
  - { name: SERVICE_NEW_ACCOUNT_TIER, value: platinum }
  - { name: SERVICE_INVITATION_DAYS, value: "0" }
  - { name: SERVICE_INVITATION_DAYS, value: "-1" }
`);
  for (const line of [
    "nothing was changed",
    "gateway.yaml:2: tiers, free, rpm: must be at least 1",
    "gateway.yaml:3: tiers, gold, monthly_usd_quota: must be at least 0",
    "gateway.yaml:6: backends, new, ulr: is not a field",
    "gateway.yaml:7: backends, other: Unknown backend type: nonsense",
    "gateway.yaml:9: backends, third: `url` must be an absolute URL",
    "gateway.yaml:11: prices, m, output_usd: is missing",
    "gateway.yaml:15: routes, r, targets.0.wait: is not a field",
    "gateway.yaml:18: routes, s, name: s stands here twice",
    "gateway.yaml:22: settings, SERVICE_NEW_ACCOUNT_TIER, value: must be one of free, pro, enterprise, gold\n",
    "gateway.yaml:23: settings, SERVICE_INVITATION_DAYS, value: must be at least 1",
    "gateway.yaml:24: settings, SERVICE_INVITATION_DAYS, name: SERVICE_INVITATION_DAYS stands here twice",
    "gateway.yaml:24: settings, SERVICE_INVITATION_DAYS, value: must be a whole number",
    "gateway.yaml:20: people: is not a section; there are backends",
  ])
    expect(all).toContain(line);
  expect(await bad("backends:\n  - name: x\n   url: y\n")).toContain("gateway.yaml:3: ");
  expect(await bad("backends:\n  name: x\n")).toContain("gateway.yaml:2: backends: must be a list");
  expect(await bad("backends:\n  - name: x\n    api_key: sk-1\n")).toMatch(
    /gateway\.yaml:3: .*api_key: is a secret: write \{ env/,
  );
  expect(await bad("backends:\n  - name: x\n    api_key: { env: NO_SUCH }\n")).toContain(
    "gateway.yaml:3: backends, x, api_key: the environment has no NO_SUCH",
  );
  const bomb = ["x", ..."abcdefgh"].map((name, at, all) =>
    at === 0 ? "x: &x [1]" : `${name}: &${name} [${Array(20).fill(`*${all[at - 1]}`)}]`,
  );
  expect(await bad(`${bomb.join("\n")}\n`)).toMatch(/gateway\.yaml:1: .*alias/);
  expect((await shell.run(["export"])).out).toBe(before);
});

test("a login left over from other data gives way to the one of the environment, at the first command", async () => {
  const saved = join(shell.dir, "config/model-gateway/session.json");
  expect((await shell.run(["whoami"])).err).toBe("");
  const before = JSON.parse(readFileSync(saved, "utf8"));
  const session = { ...before.session, accessToken: "of.other.data", refreshToken: "of-other-data" };
  writeFileSync(saved, JSON.stringify({ ...before, session }));
  const { code, out, err } = await shell.run(["whoami"]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toContain("operator@example.com");
});

test("two who apply a file at once make each group once", async () => {
  const path = file("groups: [{ name: Twins, rpm_ceiling: 5 }]\n");
  const both = await Promise.all([1, 2].map(() => shell.run(["apply", "-f", path])));
  expect(both.map(({ err }) => err)).toEqual(["", ""]);
  const groups = (await gateway.rpc("group.list", {}, operator)) as { name: string; rpm_ceiling: number }[];
  expect(groups.filter(({ name }) => name === "Twins")).toMatchObject([{ rpm_ceiling: 5 }]);
});

test("a watched file is applied whenever it changes, and a broken one is told once", async () => {
  const path = file("prices: [{ model: w, input_usd: 1, output_usd: 1 }]\n");
  const watching = shell.begin(["apply", "-f", path, "--watch"]);
  const price = async () =>
    (await gateway.rpc("config.check", { configuration: {} }, operator)).present.prices.find(
      ({ model }: { model: string }) => model === "w",
    )?.input_usd;
  await until("the first version", async () => (await price()) === 1);
  file("prices: [{ model: w, input_usd: 3 }]\n");
  await watching.said(/gateway\.yaml:1: prices, w, output_usd: is missing/);
  file("prices: [{ model: w, input_usd: 3, output_usd: 1 }]\n");
  await until("the third version", async () => (await price()) === 3);
  watching.stop();
  await watching.ended;
});
