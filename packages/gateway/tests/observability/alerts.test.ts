import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { renderChart } from "@model-gateway/testing/helm.ts";
import { until } from "@model-gateway/testing/until.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const DEPLOY = join(import.meta.dir, "../../../../deploy");
const FILE = join(DEPLOY, "prometheus-alerts.yaml");
/** Registered only where the service speaks TLS, and where it has a Redis. */
const SELDOM = new Set(["gateway_tls_certificate_expires_timestamp_seconds", "gateway_redis_up"]);
const CACHED = {
  id: "c",
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1000, completion_tokens: 10, prompt_tokens_details: { cached_tokens: 600 } },
};

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
  await bench.rpc("billing.prices.set", { model: "m", input_usd: 1, output_usd: 2 }, bench.token);
  // Everything that rules and dashboard look at has happened once.
  expect((await bench.chat({ stream: true })).status).toBe(200);
  expect((await bench.chat({ model: "unknown" })).status).toBe(404);
  bench.upstream.answer((_, reply) => reply.json(CACHED));
  expect((await bench.chat({})).status).toBe(200);
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
      if (SELDOM.has(name)) continue;
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
test.if(promtool !== null)(
  "promtool accepts rules and scrape configuration, and the rules fire when they should",
  async () => {
    const told = (args: string[]) => Bun.spawnSync([promtool!, ...args]).exitCode;
    expect(told(["check", "rules", FILE])).toBe(0);
    expect(told(["check", "config", join(DEPLOY, "prometheus.yaml")])).toBe(0);
    expect(told(["test", "rules", FILE.replace(/\.yaml$/, ".test.yaml")])).toBe(0);
  },
);

test("counters are called so, and what was asked, charged and read from a cache is counted", () => {
  for (const [, name, type] of metrics.matchAll(/^# TYPE (\w+) (counter|gauge)$/gm))
    expect([name, name!.endsWith("_total")]).toEqual([name, type === "counter"]);
  expect(metrics).toMatch(/^gateway_requests_total\{surface="\/v1\/chat\/completions",code="ok"\} [1-9]/m);
  expect(metrics).toMatch(
    /^gateway_requests_total\{surface="\/v1\/chat\/completions",code="model_not_found"\} 1$/m,
  );
  expect(metrics).toMatch(/^gateway_cost_usd_total\{model="m"\} 0\.00/m);
  expect(metrics).toMatch(/^gateway_cached_tokens_total\{model="m"\} 600$/m);
  expect(metrics).toMatch(/^gateway_backend_up\{backend="first"\} [01]$/m);
  expect(metrics).toMatch(/^gateway_build_info\{version="[\d.]+",build="\w+"\} 1$/m);
  expect(metrics).toMatch(/^gateway_database_up 1$/m);
});

test("the dashboard asks only for metrics and labels that the service has", async () => {
  const { panels } = (await Bun.file(join(DEPLOY, "grafana-dashboard.json")).json()) as {
    panels: { title: string; targets?: { expr: string }[] }[];
  };
  const queries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(15);
  for (const expr of queries) {
    const [name = ""] = /(gateway|process)_[a-z_]+/.exec(expr) ?? [];
    const [, labels = ""] = /by \(([^)]+)\)/.exec(expr) ?? [];
    if (name === "") expect(expr).toContain("up{");
    else expect(metrics).toContain(`# TYPE ${name.replace(/_(bucket|sum|count)$/, "")} `);
    // Prometheus itself adds the instance.
    for (const label of labels.split(/,\s*/).filter((each) => each !== "" && each !== "instance"))
      expect(metrics).toMatch(new RegExp(`^${name}\\{[^}]*${label}="`, "m"));
  }
  expect(panels.slice(1, 7).map(({ title }) => title)).toEqual([
    ...["Requests a second", "Errors", "Tokens a second", "First token, p95", "Backends down", "Spend, 24 h"],
  ]);
});

test("a backend that is down is a figure, a panel and an alert", async () => {
  expect(rules.map(({ alert, expr }) => [alert, expr])).toContainEqual([
    "GatewayBackendDown",
    expect.stringContaining("gateway_backend_up"),
  ]);
  await bench.admin("POST", "/backends", { name: "away", type: "external", url: "http://127.0.0.1:9" });
  await until("it is seen to be down", async () =>
    (await (await fetch(`${bench.url}/metrics`)).text()).includes('gateway_backend_up{backend="away"} 0'),
  );
});

test("the scrape configuration that ships has the job that rules go by, and the rules", async () => {
  const shipped = Bun.YAML.parse(await Bun.file(join(DEPLOY, "prometheus.yaml")).text()) as {
    rule_files: string[];
    scrape_configs: { job_name: string }[];
  };
  expect(shipped.rule_files).toEqual(["prometheus-alerts.yaml"]);
  const [job] = shipped.scrape_configs.map(({ job_name }) => job_name);
  const jobs = rules.flatMap(({ expr }) => [...expr.matchAll(/job="([^"]+)"/g)].map(([, name]) => name));
  expect(new Set(jobs)).toEqual(new Set([job]));

  // The one for Kubernetes, without its comment signs, has the same name and finds the pods of the chart.
  const text = await Bun.file(join(DEPLOY, "prometheus.yaml")).text();
  const commented = text.slice(text.indexOf("  # - job_name")).replaceAll(/^ {2}# /gm, "");
  const [inCluster] = Bun.YAML.parse(commented) as {
    job_name: string;
    relabel_configs: { source_labels: string[]; regex?: string; action?: string }[];
  }[];
  expect(inCluster!.job_name).toBe(job!);
  const chart = await renderChart(join(DEPLOY, "helm"), "gateway");
  const { template } = chart.find(({ kind }) => kind === "StatefulSet").spec;
  const known: Record<string, string> = {
    __meta_kubernetes_pod_container_port_name: template.spec.containers[0].ports[0].name,
  };
  for (const [label, value] of Object.entries<string>(template.metadata.labels))
    known[`__meta_kubernetes_pod_label_${label.replaceAll(/\W/g, "_")}`] = value;
  for (const { source_labels, regex } of inCluster!.relabel_configs.filter(({ action }) => action === "keep"))
    expect(known[source_labels[0]!]).toBe(regex!);
});
