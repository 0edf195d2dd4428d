import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type App, type AppOverrides, startApp } from "@model-gateway/gateway/app/index.ts";
import { type Config, readConfig } from "@model-gateway/gateway/config.ts";
import { silentLog } from "@model-gateway/gateway/kernel/log.ts";
import { DEFAULT_TIER } from "@model-gateway/gateway/rooms/billing/index.ts";
import { type Deployed, type Deployment, deploy, deploymentOfRun } from "./deployment.ts";

export const ADMIN_TOKEN = "test-admin-token-0123456789";

export interface RpcAnswer<T> {
  jsonrpc: "2.0";
  id: unknown;
  result: T;
  error: { code: number; message: string; data?: Record<string, unknown> };
}

interface Registered {
  access_token: string;
  user: { id: string; is_admin: boolean };
}

export interface TestGateway {
  app: App;
  url: string;
  dataDir: string;
  /** The whole answer of one call. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  call<T = any>(method: string, params?: unknown, bearer?: string): Promise<RpcAnswer<T>>;
  /** The result of one call; throws when it is an error. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  rpc<T = any>(method: string, params?: unknown, bearer?: string): Promise<T>;
  /**
   * Registers (or signs in) `<name>@example.com` and returns the access token. Everyone is on the free tier, the first
   * one too, who administers the service: tests of money and limits are about people who have some.
   */
  signIn(name: string): Promise<string>;
  stop(): Promise<void>;
}

export interface BootOptions {
  config?: Partial<Config>;
  overrides?: AppOverrides;
  /** Reuse a directory, e.g. to start again on the same data. */
  dataDir?: string;
  /** Several processes instead of one, as `npm run deployments` has it for all tests. */
  deployment?: Deployment | null;
}

export const PASSWORD = "correct horse battery";
// Thousands of accounts are made with it. Hashed as others are, it would take minutes of the suite's time.
const { hash } = Bun.password;
Bun.password.hash = (password, options) =>
  hash(password, password === PASSWORD ? { algorithm: "argon2id", memoryCost: 8, timeCost: 1 } : options);

const LIMITED_MS_MAX = 30_000;

async function startAlone(config: Config, overrides: AppOverrides): Promise<Deployed> {
  const app = await startApp(config, overrides);
  return { app, url: app.url, stop: () => app.stop() };
}

/** A booted service on a free port with its own data directory. */
export async function bootGateway({
  config = {},
  overrides = {},
  dataDir,
  deployment = deploymentOfRun,
}: BootOptions = {}): Promise<TestGateway> {
  const dir = dataDir ?? mkdtempSync(join(tmpdir(), "gateway-test-"));
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: dir,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    SERVICE_REGISTRATION_OPEN: "true",
    SERVICE_NODES_ON_LOOPBACK: "true",
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  const whole = { ...read.config, ...config };
  const parts = { log: silentLog, ...overrides };
  // A test that brings instances of its own says how they share.
  const isAlone = deployment === null || whole.redisUrl !== null || overrides.worker !== undefined;
  const { app, url, stop } = isAlone
    ? await startAlone(whole, parts)
    : await deploy(deployment, whole, parts);
  const call = async <T>(method: string, params?: unknown, bearer?: string): Promise<RpcAnswer<T>> => {
    const response = await fetch(`${url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    return (await response.json()) as RpcAnswer<T>;
  };
  const rpc = async <T>(method: string, params?: unknown, bearer?: string): Promise<T> => {
    const answer = await call<T>(method, params, bearer);
    if (answer.error) throw new Error(`${method}: ${answer.error.code} ${answer.error.message}`);
    return answer.result;
  };
  return {
    app,
    url,
    dataDir: dir,
    call,
    rpc,
    async signIn(name) {
      const email = `${name}@example.com`;
      const register = () => call<Registered>("auth.register", { email, password: PASSWORD, name });
      let registered = await register();
      // Instances that share a Redis share its limits with every test that runs beside this one, from one address.
      const deadlineMs = Date.now() + LIMITED_MS_MAX;
      while (registered.error?.message.startsWith("Too many attempts") && Date.now() < deadlineMs) {
        await Bun.sleep(500);
        registered = await register();
      }
      if (registered.result) {
        const { access_token, user } = registered.result;
        if (user.is_admin) await app.rooms.billing.setTier(user.id, DEFAULT_TIER);
        return access_token;
      }
      const { result } = await call<{ access_token: string }>("auth.login", { email, password: PASSWORD });
      if (!result) throw new Error(`${email} can neither register nor sign in: ${registered.error?.message}`);
      return result.access_token;
    },
    async stop() {
      await stop();
      if (!dataDir) rmSync(dir, { recursive: true, force: true });
    },
  };
}
