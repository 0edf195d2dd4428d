import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { descendantsOf, signal } from "@model-gateway/agent/guard/processes.ts";
import { until } from "@model-gateway/testing/until.ts";

const MAIN = join(import.meta.dir, "../../../packages/gateway/src/main.ts");
export const ADMIN_TOKEN = "cluster-admin-token-0123456789";
const PASSWORD = "correct horse battery";
/** On a machine with forty jobs at once a worker alone needs twenty seconds. */
const START_WITHIN_MS = 120_000;

/** A key may make this many requests a minute; more than a test sends, unless the limit is what it looks at. */
export const GENEROUS_RPM = 100_000;

export interface ClusterOptions {
  /** Null: the embedded database in its data directory. */
  databaseUrl: string | null;
  /** Null: the instance is alone. */
  redisUrl: string | null;
  env?: Record<string, string>;
  /** Where its data goes; else a new directory, removed with it. */
  dataDir?: string;
  /** A module that the process loads before the service. */
  preload?: string;
  /** Is told what the process writes to its log, as it comes. */
  onLog?: (text: string) => void;
}

/** One process of the service; its data directory outlives it, as a machine's disk does. */
export class Instance {
  url = "";
  readonly dataDir: string;
  #child: Bun.Subprocess<"ignore", "pipe", "pipe"> | null = null;
  #log = "";

  constructor(readonly options: ClusterOptions) {
    this.dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), "gateway-cluster-"));
  }

  async start(): Promise<this> {
    const { databaseUrl, redisUrl, env, preload, onLog } = this.options;
    const command = [process.execPath, ...(preload ? ["--preload", preload] : []), MAIN];
    const child = Bun.spawn(command, {
      env: {
        PATH: process.env.PATH ?? "",
        SERVICE_PORT: "0",
        SERVICE_DATA_DIR: this.dataDir,
        ...(databaseUrl !== null && { SERVICE_DATABASE_URL: databaseUrl }),
        ...(redisUrl !== null && { SERVICE_REDIS_URL: redisUrl }),
        SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
        SERVICE_JWT_SECRET: "one secret for all instances, 0123456789",
        SERVICE_REGISTRATION_OPEN: "true",
        SERVICE_API_RATE_LIMIT_RPM: String(GENEROUS_RPM),
        SERVICE_LOG: "json",
        SERVICE_WARM_UP: "0",
        BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
        ...env,
      },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    this.#child = child;
    let printed = "";
    const collect = async (stream: ReadableStream<Uint8Array>, keep: (text: string) => void) => {
      const decoder = new TextDecoder();
      for await (const chunk of stream) keep(decoder.decode(chunk, { stream: true }));
    };
    void collect(child.stdout, (text) => {
      printed += text;
    });
    void collect(child.stderr, (text) => {
      this.#log = (this.#log + text).slice(-100_000);
      onLog?.(text);
    });
    await until(
      "the start of an instance",
      () => {
        if (child.exitCode !== null) throw new Error(`the instance did not start: ${this.#log.slice(-500)}`);
        return /listening on (http:\S+)/.test(printed) && printed.includes("accounts");
      },
      START_WITHIN_MS,
    );
    this.url = /listening on (http:\S+)/.exec(printed)![1]!;
    return this;
  }

  get log(): string {
    return this.#log;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Of the process, and of its workers. */
  get pids(): number[] {
    return this.#child ? [this.pid, ...descendantsOf(this.pid)] : [];
  }

  #signal(name: NodeJS.Signals): void {
    for (const pid of this.pids) signal(pid, name);
  }

  /** SIGSTOP, until SIGCONT. */
  freeze(): void {
    this.#signal("SIGSTOP");
  }

  resume(): void {
    this.#signal("SIGCONT");
  }

  /** A figure of its metrics; with workers, of all together. */
  async metric(name: string): Promise<number> {
    const response = await fetch(`${this.url}/metrics`, {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    const lines = (await response.text()).matchAll(
      new RegExp(`^${name}(?:\\{worker="\\d+"\\})? (\\S+)$`, "gm"),
    );
    const values = Array.from(lines, ([, value]) => Number(value));
    return values.length === 0 ? Number.NaN : values.reduce((sum, value) => sum + value, 0);
  }

  /** kill -9. */
  async kill(): Promise<void> {
    this.#signal("SIGKILL");
    await this.#child?.exited;
  }

  /** SIGTERM; resolves with the exit code once it has drained. */
  async drain(): Promise<number> {
    this.#child?.kill("SIGTERM");
    return (await this.#child?.exited) ?? 0;
  }

  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  async rpc<T = any>(method: string, params?: unknown, bearer?: string): Promise<T> {
    const response = await fetch(`${this.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    const { result, error } = (await response.json()) as { result: T; error?: { message: string } };
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  async signUp(name: string): Promise<string> {
    const email = `${name}@example.com`;
    return (await this.rpc("auth.register", { email, password: PASSWORD, name })).access_token;
  }

  chat(key: string, { model = "m", text = "hi" } = {}): Promise<Response> {
    return fetch(`${this.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, max_tokens: 8, messages: [{ role: "user", content: text }] }),
    });
  }

  async admin(method: string, path: string, body?: unknown): Promise<Response> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  }

  /** Ids of the models that it routes to. */
  async models(): Promise<string[]> {
    const response = await fetch(`${this.url}/v1/models`);
    return ((await response.json()) as { data: { id: string }[] }).data.map(({ id }) => id);
  }
}
