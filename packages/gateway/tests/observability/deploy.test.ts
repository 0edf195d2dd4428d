import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { renderChart } from "@model-gateway/testing/helm.ts";
import { Glob } from "bun";
import { readConfig } from "../../src/config.ts";

const DEPLOY = join(import.meta.dir, "../../../../deploy");
const CHART = join(DEPLOY, "helm");

// biome-ignore lint/suspicious/noExplicitAny: documents of many shapes.
type Document = any;

let documents: Document[];
let service: TestGateway;
beforeAll(async () => {
  const autoscaling = { enabled: true, minReplicas: 3, maxReplicas: 30 };
  documents = await renderChart(CHART, "gateway", { autoscaling, configuration: "tiers: []\nroutes: []\n" });
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
  const metrics = await (await fetch(`${service.url}/metrics`)).text();
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

test("the chart leaves out what is not asked for, and scales by hand then", async () => {
  const plain = await renderChart(CHART, "models");
  const kinds = plain.map(({ kind }) => kind).sort();
  expect(kinds).toEqual(["Ingress", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]);
  const { spec, metadata } = plain.find(({ kind }) => kind === "StatefulSet");
  expect([metadata.name, spec.replicas]).toEqual(["models", 3]);
  expect(spec.template.spec.containers[0].image).toBe("model-gateway:0.1.0");
  // What an autoscaler has set must not be set back by the next upgrade.
  expect(one("StatefulSet").spec.replicas).toBeUndefined();
});

test("its configuration is a file that the command line applies", async () => {
  const [container] = one("Deployment", "gateway-configuration").spec.template.spec.containers;
  expect(container.args).toEqual(["apply", "--file", "/config/gateway.yaml", "--watch"]);
  const { "gateway.yaml": file } = one("ConfigMap", "gateway-configuration").data;
  expect(Bun.YAML.parse(file)).toEqual({ tiers: [], routes: [] });
});

test("secrets for compose are made once, readable by their owner alone", () => {
  const dir = mkdtempSync(join(tmpdir(), "make-env-"));
  try {
    cpSync(join(DEPLOY, "make-env"), join(dir, "make-env"));
    const make = () => Bun.spawnSync([join(dir, "make-env"), "https://models.example.com"]);
    expect(make().exitCode).toBe(0);
    const file = join(dir, ".env");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const made = readFileSync(file, "utf8");
    const settings = Object.fromEntries(
      [...made.matchAll(/^(\w+)=(.+)$/gm)].map(([, name, value]) => [name, value]),
    );
    expect(settings.POSTGRES_PASSWORD).toMatch(/^[0-9a-f]{32}$/);
    expect("config" in readConfig(settings)).toBe(true);
    expect(make().exitCode).toBe(1);
    expect(readFileSync(file, "utf8")).toBe(made);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("compose hands on every setting, and its services have what they need", async () => {
  const { services } = Bun.YAML.parse(await Bun.file(join(DEPLOY, "compose.yaml")).text()) as Document;
  expect([services.gateway.env_file, services.configuration.env_file]).toEqual([".env", ".env"]);
  const set = Object.keys(services.gateway.environment);
  expect(set).toEqual(["SERVICE_DATABASE_URL", "SERVICE_REDIS_URL"]);
  expect(services.configuration.command.slice(0, 2)).toEqual(["apply", "--file"]);
});

test("the image has a command line that works from any folder, and says whether it is healthy", async () => {
  const dockerfile = await Bun.file(join(DEPLOY, "Dockerfile")).text();
  const root = join(DEPLOY, "..");
  // Every package that the lock file names is there when npm runs.
  const { workspaces } = (await Bun.file(join(root, "package.json")).json()) as { workspaces: string[] };
  expect(workspaces).toEqual(["packages/*"]);
  for (const name of new Glob("*/package.json").scanSync(join(root, "packages")))
    expect(dockerfile).toContain(`COPY packages/${name} packages/`);
  expect(dockerfile).toContain("postgresql-client");

  // As the Dockerfile lays it out: a link from elsewhere, no PATH, another working directory.
  const dir = mkdtempSync(join(tmpdir(), "image-"));
  try {
    mkdirSync(join(dir, "bin"));
    symlinkSync(join(DEPLOY, "model-gateway"), join(dir, "bin/model-gateway"));
    const run = (...args: string[]) =>
      Bun.spawnSync([join(dir, "bin/model-gateway"), ...args], {
        cwd: dir,
        env: { PATH: "/usr/bin:/bin", HOME: dir, SERVICE_DATA_DIR: join(dir, "data") },
      });
    expect(run("migrate").exitCode).toBe(0);
    expect(run("backup", join(dir, "backup")).exitCode).toBe(0);
    expect(run("restore", join(dir, "backup"), "--force").exitCode).toBe(0);
  } finally {
    rmSync(dir, { recursive: true });
  }
  const health = (port: string) =>
    Bun.spawn(["node", join(DEPLOY, "health.js")], { env: { ...process.env, SERVICE_PORT: port } }).exited;
  expect(await health(new URL(service.url).port)).toBe(0);
  expect(await health("9")).toBe(1);
});

test("the ingress takes what the service takes, and /metrics behind it asks for a token", () => {
  const read = readConfig({});
  if ("problems" in read) throw new Error(read.problems.join("\n"));
  const { annotations } = one("Ingress").metadata;
  const [, mebibytes] = /^(\d+)m$/.exec(annotations["nginx.ingress.kubernetes.io/proxy-body-size"]) ?? [];
  expect(Number(mebibytes) * 1024 * 1024).toBe(read.config.uploadBytesMax);
  const { valueFrom } = container().env.find(({ name }: Document) => name === "SERVICE_METRICS_TOKEN");
  expect(valueFrom.secretKeyRef.key).toBe("metrics-token");
});

const analyze = Bun.which("systemd-analyze");
test.if(analyze !== null).each(["model-gateway.service", "model-gateway-configuration.service"])(
  "systemd accepts %s",
  async (name) => {
    const dir = mkdtempSync(join(tmpdir(), "unit-"));
    try {
      // Where the unit expects the checkout there is none here.
      const unit = (await Bun.file(join(DEPLOY, name)).text()).replaceAll(
        /ExecStart=\S+/g,
        "ExecStart=/bin/true",
      );
      await Bun.write(join(dir, name), unit);
      const told = Bun.spawnSync([analyze!, "verify", join(dir, name)]);
      expect(
        told.stderr
          .toString()
          .split("\n")
          .filter((line) => line.includes(name)),
      ).toEqual([]);
    } finally {
      rmSync(dir, { recursive: true });
    }
  },
);
