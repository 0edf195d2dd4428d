import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { hurriedClock } from "@model-gateway/testing/clock.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { exposureOf } from "../../src/app/exposure.ts";
import { readConfig } from "../../src/config.ts";
import { createLog } from "../../src/kernel/log.ts";

const openssl = Bun.which("openssl");
const dir = mkdtempSync(join(tmpdir(), "gateway-tls-"));
const file = (name: string) => join(dir, name);

async function make(name: string): Promise<void> {
  const made = Bun.spawn(
    [
      ...[openssl!, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ...["-keyout", file(`${name}.key`), "-out", file(`${name}.crt`), "-days", "2", "-subj", `/CN=${name}`],
      ...["-addext", "subjectAltName=IP:127.0.0.1"],
    ],
    { stderr: "ignore" },
  );
  expect(await made.exited).toBe(0);
}

describe.if(openssl !== null)("TLS", () => {
  let gateway: TestGateway | null = null;
  const lines: string[] = [];
  beforeAll(async () => {
    for (const name of ["old", "new"]) await make(name);
  });
  afterEach(async () => {
    await gateway?.stop();
    gateway = null;
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  const boot = async (config: { tlsCert: string; tlsKey: string }) => {
    const log = createLog({ level: "info", format: "json", write: (line) => lines.push(line) });
    gateway = await bootGateway({ config, overrides: { log, clock: hurriedClock }, deployment: null });
    return gateway;
  };
  const trusting = async (): Promise<BunFetchRequestInit> => ({
    tls: { ca: [await Bun.file(file("old.crt")).text(), await Bun.file(file("new.crt")).text()] },
  });
  const servedName = ({ app }: TestGateway) =>
    new Promise<string>((resolve, reject) => {
      const socket = tls.connect({ port: app.port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
        resolve(String(socket.getPeerCertificate().subject.CN));
        socket.destroy();
      });
      socket.once("error", reject);
    });

  test("the health check of the image follows the port and TLS", async () => {
    const { app } = await boot({ tlsCert: file("old.crt"), tlsKey: file("old.key") });
    const health = (env: Record<string, string>) =>
      Bun.spawn(["node", join(import.meta.dir, "../../../../deploy/health.js")], {
        env: { ...process.env, SERVICE_PORT: String(app.port), ...env },
        stderr: "ignore",
      }).exited;
    expect(await health({ SERVICE_TLS_CERT: file("old.crt") })).toBe(0);
    expect(await health({})).toBe(1);
  });

  test("serves over https, and takes a renewed certificate without a restart; a broken one changes nothing", async () => {
    copyFileSync(file("old.crt"), file("tls.crt"));
    copyFileSync(file("old.key"), file("tls.key"));
    const service = await boot({ tlsCert: file("tls.crt"), tlsKey: file("tls.key") });
    expect(service.url).toStartWith("https://127.0.0.1:");
    const ask = async (path: string) => fetch(service.url + path, await trusting());
    expect((await ask("/v1/models")).status).toBe(200);
    expect(await (await ask("/api/openrpc.json")).text()).toContain(`https://127.0.0.1:${service.app.port}`);
    expect(await (await ask("/metrics")).text()).toMatch(
      /^gateway_tls_certificate_expires_timestamp_seconds \d{10}/m,
    );
    const page = await (await ask("/")).text();
    expect(page).toContain("<html");
    expect(await servedName(service)).toBe("old");
    // An open connection outlives all that follows.
    const events = await ask(`/api/rpc/events?session=${crypto.randomUUID()}`);
    const reader = events.body!.getReader();

    // Half of it first, as tools that renew do; then nonsense; then the rest, by a link.
    copyFileSync(file("new.crt"), file("tls.crt"));
    await until("the log says that they do not fit", () => lines.join("").includes("is not the key of"));
    expect(await servedName(service)).toBe("old");
    writeFileSync(file("tls.crt"), "nonsense");
    await until("the log says that", () => lines.join("").includes("is not a certificate"));
    expect(await servedName(service)).toBe("old");
    unlinkSync(file("tls.crt"));
    symlinkSync(file("new.crt"), file("tls.crt"));
    copyFileSync(file("new.key"), file("tls.key"));
    await until("the new one is served", async () => (await servedName(service)) === "new");
    expect(lines.join("")).toContain("the TLS certificate was renewed");
    expect(lines.join("")).not.toContain("PRIVATE KEY");
    expect((await ask("/v1/models")).status).toBe(200);
    await reader.cancel();
  }, 60_000);

  test("does not start with files that cannot be used, and says which", async () => {
    writeFileSync(file("nonsense"), "nonsense");
    const starts: [string, string, string][] = [
      ["missing.crt", "old.key", "SERVICE_TLS_CERT: "],
      ["nonsense", "old.key", "is not a certificate"],
      ["old.crt", "nonsense", "is not a private key"],
      ["old.crt", "new.key", "is not the key of the certificate"],
    ];
    for (const [cert, key, told] of starts) {
      const starting = boot({ tlsCert: file(cert), tlsKey: file(key) });
      expect(
        await starting.then(
          () => "started",
          (error) => String(error),
        ),
      ).toContain(told);
    }
  });
});

test("certificate and key are set together, and a service with them is not called open", () => {
  expect(readConfig({ SERVICE_TLS_CERT: "x" })).toMatchObject({
    problems: [expect.stringContaining("SERVICE_TLS_KEY")],
  });
  const around = { isRoot: false, isSandboxed: true };
  const messages = (env: Record<string, string>) => {
    const read = readConfig({ SERVICE_HOST: "0.0.0.0", ...env });
    if ("problems" in read) throw new Error(read.problems.join());
    return exposureOf(read.config, around)
      .map(({ message }) => message)
      .join();
  };
  expect(messages({})).toContain("without TLS");
  expect(messages({ SERVICE_TLS_CERT: "c", SERVICE_TLS_KEY: "k" })).not.toContain("without TLS");
});
