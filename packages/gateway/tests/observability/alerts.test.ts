import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const FILE = join(import.meta.dir, "../../../../deploy/prometheus-alerts.yaml");
/** Registered only where the service speaks TLS; its own test sees it there. */
const WITH_TLS = "gateway_tls_certificate_expires_timestamp_seconds";

interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; action: string };
}

let bench: InferenceBench;
let metrics: string;
let rules: Rule[];
beforeAll(async () => {
  bench = await bootInference({ upstream: { models: ["m"] } });
  await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url });
  // Everything that the rules look at has happened once.
  expect((await bench.chat({ stream: true })).status).toBe(200);
  expect((await bench.chat({ model: "unknown" })).status).toBe(404);
  bench.upstream.answer((_, reply) => reply.json({ error: { message: "out of order" } }, 500));
  const read = async () => {
    metrics = await (await fetch(`${bench.url}/metrics`)).text();
    return metrics;
  };
  let times = 0;
  await until("a circuit has opened", async () => {
    await bench.chat({ messages: [{ role: "user", content: `try ${times++}` }] });
    return (await read()).includes("gateway_backend_circuit_changes_total{");
  });
  const parsed = Bun.YAML.parse(await Bun.file(FILE).text()) as { groups: { rules: Rule[] }[] };
  rules = parsed.groups.flatMap((group) => group.rules);
});
afterAll(() => bench.stop());

test("every rule names its severity, what is wrong and what to do", () => {
  expect(rules.length).toBeGreaterThan(8);
  expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
  for (const { alert, labels, annotations } of rules) {
    expect(alert).toStartWith("Gateway");
    expect(["warning", "critical"]).toContain(labels.severity);
    expect(annotations.summary.length).toBeGreaterThan(10);
    expect(annotations.action.length).toBeGreaterThan(10);
  }
});

test("the rules ask only for metrics and labels that the service has", () => {
  const served = new Set([...metrics.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name));
  for (const { alert, expr } of rules) {
    const names = new Set(expr.match(/gateway_[a-z_]+/g));
    for (const name of names) {
      if (name === WITH_TLS) continue;
      const base = name.replace(/_(bucket|sum|count)$/, "");
      expect({ alert, name, isServed: served.has(base) }).toEqual({ alert, name, isServed: true });
      const grouped = /by \(([^)]+)\)/.exec(expr)?.[1]?.split(/,\s*/) ?? [];
      const matched = [...expr.matchAll(new RegExp(`${name}\\{(\\w+)`, "g"))].map(([, label]) => label!);
      // Prometheus itself adds the instance and the job.
      for (const label of [...grouped, ...matched].filter((each) => each !== "instance" && each !== "job"))
        expect({ alert, line: new RegExp(`^${name}\\{[^}]*${label}="`, "m").test(metrics), label }).toEqual({
          alert,
          line: true,
          label,
        });
    }
  }
});

const promtool = Bun.which("promtool");
test.if(promtool !== null)("promtool accepts the rules, and they fire when they should", async () => {
  const told = (args: string[]) => Bun.spawnSync([promtool!, ...args]).exitCode;
  expect(told(["check", "rules", FILE])).toBe(0);
  expect(told(["test", "rules", FILE.replace(/\.yaml$/, ".test.yaml")])).toBe(0);
});
