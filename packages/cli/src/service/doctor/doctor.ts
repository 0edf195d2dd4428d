import { readConfig } from "@model-gateway/gateway/config.ts";
import { asCalled } from "../../called.ts";
import type { Invocation } from "../../command.ts";
import {
  checkBackends,
  checkClock,
  checkDatabase,
  checkDataDir,
  checkExposure,
  checkPort,
  checkRedis,
  checkWorkers,
  type Finding,
} from "./checks.ts";
import { examineService } from "./service-checks.ts";

const SIGNS: Record<Finding["state"], string> = { ok: "ok     ", warning: "warning", failed: "FAILED " };

async function examine(env: Record<string, string | undefined>): Promise<Finding[]> {
  const read = readConfig(env);
  if ("problems" in read) {
    return read.problems.map((message) => ({
      check: "settings",
      state: "failed",
      message,
      remedy: "model-gateway serve --help lists all settings",
    }));
  }
  const options = { config: read.config, now: Date.now };
  const settings: Finding = { check: "settings", state: "ok", message: "all settings are understood" };
  const dataDir = checkDataDir(options);
  // If the directory is unusable, the database check would only repeat that.
  const reachable = dataDir.state === "ok" || read.config.databaseUrl !== null;
  return [
    settings,
    checkClock(options),
    ...checkExposure(options),
    dataDir,
    ...(reachable ? await checkDatabase(options) : []),
    ...(await checkRedis(options)),
    ...checkWorkers(options),
    await checkPort(options),
    await checkBackends(options),
  ];
}

export async function doctor({ output, connection }: Invocation): Promise<void> {
  const findings = [
    // With an address, the service there is meant and not this machine.
    ...(connection.isGiven ? [] : await examine(process.env)),
    ...(connection.isGiven || connection.isSignedIn ? await examineService(connection) : []),
  ];
  const broken = findings.some(({ state }) => state === "failed");
  output.result({ ok: !broken, findings }, () =>
    findings.flatMap(({ check, state, message, remedy }) => [
      `${output.state(state, SIGNS[state])}  ${check}: ${message}`,
      ...(remedy ? [`           ${asCalled(remedy)}`] : []),
    ]),
  );
  if (broken) process.exitCode = 1;
}
