import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { Glob } from "bun";
import { readConfig } from "../../src/config.ts";

const FOLDER = join(import.meta.dir, "../../../../deploy/kubernetes");

// biome-ignore lint/suspicious/noExplicitAny: documents of many shapes.
type Document = any;

const documents: Document[] = [];
let service: TestGateway;
beforeAll(async () => {
  for (const name of new Glob("*.yaml").scanSync(FOLDER)) {
    const parsed = Bun.YAML.parse(await Bun.file(join(FOLDER, name)).text());
    documents.push(...(Array.isArray(parsed) ? parsed : [parsed]));
  }
  service = await bootGateway();
});
afterAll(() => service.stop());

const one = (kind: string, name = "gateway"): Document => {
  const found = documents.filter((each) => each.kind === kind && each.metadata.name === name);
  expect([kind, found.length]).toEqual([kind, 1]);
  return found[0];
};
const container = () => one("StatefulSet").spec.template.spec.containers[0];
const environment = (): Record<string, string> =>
  Object.fromEntries(container().env.map(({ name, value }: Document) => [name, value ?? "x".repeat(64)]));

test("all that selects the instances selects them", () => {
  const { template, selector, serviceName } = one("StatefulSet").spec;
  const selectors = [
    selector.matchLabels,
    one("PodDisruptionBudget").spec.selector.matchLabels,
    one("Service").spec.selector,
    one("Service", serviceName).spec.selector,
    template.spec.topologySpreadConstraints[0].labelSelector.matchLabels,
  ];
  for (const each of selectors) expect(template.metadata.labels).toMatchObject(each);
  const { scaleTargetRef, minReplicas } = one("HorizontalPodAutoscaler").spec;
  expect(scaleTargetRef).toEqual({ apiVersion: "apps/v1", kind: "StatefulSet", name: "gateway" });
  // A budget of one that may be missing needs at least another one that serves.
  expect(minReplicas).toBeGreaterThan(one("PodDisruptionBudget").spec.maxUnavailable);
  const [path] = one("Ingress").spec.rules[0].http.paths;
  expect(path.backend.service).toEqual({ name: "gateway", port: { name: "http" } });
});

test("its settings are settings of the service, and it starts with them", () => {
  const read = readConfig({
    ...environment(),
    SERVICE_DATABASE_URL: "postgres://gateway@localhost/gateway",
    SERVICE_REDIS_URL: "redis://localhost",
  });
  if ("problems" in read) throw new Error(read.problems.join("\n"));
  const { config } = read;
  expect(config.trustedProxies).toEqual(["10.0.0.0/8"]);
  const { terminationGracePeriodSeconds } = one("StatefulSet").spec.template.spec;
  const { readinessProbe } = container();
  // What is killed before it has let its streams finish and settled them was stopped too early.
  expect(terminationGracePeriodSeconds * 1000).toBeGreaterThan(config.drainGraceMs + config.drainTimeoutMs);
  // And one that stops listening before the balancer knows refuses requests.
  expect(config.drainGraceMs).toBeGreaterThan(
    readinessProbe.periodSeconds * readinessProbe.failureThreshold * 1000,
  );
  expect(one("Ingress").spec.rules[0].host).toBe(new URL(config.publicUrl!).hostname);
});

test("what it probes answers, and what it scales by is measured", async () => {
  const { livenessProbe, readinessProbe, startupProbe } = container();
  for (const { httpGet } of [livenessProbe, readinessProbe, startupProbe])
    expect([httpGet.path, (await fetch(service.url + httpGet.path)).status]).toEqual([httpGet.path, 200]);
  const { annotations } = one("StatefulSet").spec.template.metadata;
  const metrics = await (await fetch(service.url + annotations["prometheus.io/path"])).text();
  const { metric } = one("HorizontalPodAutoscaler").spec.metrics[0].pods;
  expect(metrics).toContain(`# TYPE ${metric.name} gauge`);
  const adapter = Bun.YAML.parse(one("ConfigMap", "gateway-prometheus-adapter").data["config.yaml"]);
  expect((adapter as Document).rules[0].name.as).toBe(metric.name);
});

test("usage that waits on an instance's disk finds that disk again", () => {
  const { volumeClaimTemplates, persistentVolumeClaimRetentionPolicy } = one("StatefulSet").spec;
  const mounts = container().volumeMounts.map(({ name, mountPath }: Document) => [name, mountPath]);
  expect(mounts).toContainEqual([volumeClaimTemplates[0].metadata.name, "/data"]);
  expect(persistentVolumeClaimRetentionPolicy).toEqual({ whenScaled: "Retain", whenDeleted: "Retain" });
});
