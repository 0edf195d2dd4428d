import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await bootGateway();
  await gateway.rpc("system.status");
});
afterAll(() => gateway.stop());

const FILE = join(import.meta.dir, "../../../../deploy/grafana-dashboard.json");

test("the dashboard asks only for metrics that the service has", async () => {
  const text = await Bun.file(FILE).text();
  const asked = new Set(text.match(/gateway_[a-z_]+/g));
  expect(asked.size).toBeGreaterThan(5);
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  const served = new Set([...metrics.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name));
  expect([...asked].filter((name) => !served.has(name.replace(/_(bucket|sum|count)$/, "")))).toEqual([]);
});

test("labels in its queries are labels that the metrics carry", async () => {
  const { panels } = (await Bun.file(FILE).json()) as { panels: { targets?: { expr: string }[] }[] };
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const grouped = expressions.flatMap((expr) => {
    const [, label] = /by \((\w+)\)/.exec(expr) ?? [];
    const [name] = /gateway_[a-z_]+/.exec(expr) ?? [];
    // Prometheus itself adds the instance.
    return label && name && label !== "instance" ? [{ label, name }] : [];
  });
  expect(grouped.length).toBeGreaterThan(0);
  for (const { label, name } of grouped)
    expect(metrics).toMatch(new RegExp(`^${name}\\{[^}]*${label}="`, "m"));
});
