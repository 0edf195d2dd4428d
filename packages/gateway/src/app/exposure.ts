import { existsSync } from "node:fs";
import { type Config, TOKEN_LENGTH_MIN } from "../config.ts";
import type { App } from "./index.ts";

/** The first requests need not wait until the log's stream is loaded, which takes 10 ms. */
const WARN_AFTER_MS = 1_000;

interface Exposure {
  message: string;
  remedy: string;
}

interface Surroundings {
  isRoot: boolean;
  /** Whether a container separates the process from the rest of the machine. */
  isSandboxed: boolean;
}

export const ownProcess = (): Surroundings => ({
  isRoot: process.getuid?.() === 0,
  isSandboxed:
    existsSync("/.dockerenv") ||
    existsSync("/run/.containerenv") ||
    process.env.container !== undefined ||
    process.env.KUBERNETES_SERVICE_HOST !== undefined,
});

const isLoopback = (host: string) => host === "localhost" || host === "::1" || host.startsWith("127.");

/** What makes this service easier to attack than necessary; reported at every start, and by `doctor`. */
export function exposureOf(
  { host, trustedProxies, registrationOpen, adminToken, metricsToken, tlsCert, fromEnvironment }: Config,
  { isRoot, isSandboxed }: Surroundings,
): Exposure[] {
  const found: Exposure[] = [];
  const isWide = !isLoopback(host);
  const isReachable = isWide || trustedProxies.length > 0;
  if (isRoot && !isSandboxed)
    found.push({
      message: "the service runs as root without a container",
      remedy: "run it as an account of its own, as the unit in deploy/ does",
    });
  if (isWide && trustedProxies.length === 0 && tlsCert === null)
    found.push({
      message: `the service listens on ${host} without TLS, and no proxy is named: keys and passwords travel unencrypted`,
      remedy:
        "give it a certificate (SERVICE_TLS_CERT, SERVICE_TLS_KEY), or listen on 127.0.0.1 behind a proxy that speaks TLS, and name the proxy in SERVICE_TRUSTED_PROXIES",
    });
  if (isReachable && registrationOpen)
    found.push({
      message: "registration is open to everyone who can reach the service",
      remedy: fromEnvironment.includes("SERVICE_REGISTRATION_OPEN")
        ? "unset SERVICE_REGISTRATION_OPEN and invite people"
        : "close it in the console (Settings, Who may register) and invite people",
    });
  if (isReachable && metricsToken === null)
    found.push({
      message: "GET /metrics is open to everyone who can reach the service",
      remedy: "set SERVICE_METRICS_TOKEN, or close the path at the proxy",
    });
  if (adminToken !== null && adminToken.length < TOKEN_LENGTH_MIN)
    found.push({
      message: `SERVICE_ADMIN_TOKEN has fewer than ${TOKEN_LENGTH_MIN} characters, so it can be guessed`,
      remedy: "openssl rand -hex 32 makes a better one",
    });
  return found;
}

/** Uses the setting for registration that is in force, which administrators may have changed in the console. */
export function warnOfExposure({ rooms, log }: App, config: Config): void {
  const { registrationOpen } = rooms.accounts.options.signUp;
  const found = exposureOf({ ...config, registrationOpen }, ownProcess());
  setTimeout(() => {
    for (const { message, remedy } of found) log.warn(`${message}; ${remedy}`);
  }, WARN_AFTER_MS);
}
