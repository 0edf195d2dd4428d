import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DatabaseName, freshDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { Database } from "../../packages/gateway/src/storage/contract.ts";
import { openStorage } from "../../packages/gateway/src/storage/index.ts";
import { startOwnRedis } from "../../packages/gateway/tests/instances/support.ts";
import { ADMIN_TOKEN, GENEROUS_RPM, Instance } from "../cluster/support/cluster.ts";
import { Flights } from "./flights.ts";
import { Memories } from "./memories.ts";
import { MODEL_NUMBERS, PRICES, TIERS, VIDEO_DIALECTS, VIDEO_MODES } from "./plot.ts";
import { DIALECT_KINDS, type EvilUpstream, PREFIXES, startEvilUpstream } from "./upstream/index.ts";
import { startVideoUpstream, VIDEO_PRICES, type VideoUpstream, videoModel } from "./upstream/video.ts";
import { startVoiceUpstream, type VoiceUpstream } from "./upstream/voice.ts";
import { WORK_PRICES } from "./upstream/work.ts";

/** Several backends stand for the one upstream: an answer that is cut now and then must not stop the storm. */
const CHAT_BACKENDS = 8;
const OLLAMA_BACKENDS = 4;
const ENGINE_BACKENDS = 2;
const DIALECT_BACKENDS = 4;
const PASSWORD = "correct horse battery";
const BANK_MEMBERS_MAX = 1_500;
/** An instance that was silent for 15 seconds holds nothing any more. */
const DEAD_AFTER_MS = 16_000;
/** An administrator's token lives 15 minutes. */
const ADMIN_TRUSTED_MS = 10 * 60_000;

export interface StageOptions {
  database: DatabaseName;
  instances: number;
}

/** The service as real processes, the upstream behind it, and the administrator's hand. */
export class Stage {
  readonly flights = new Flights();
  instances: Instance[] = [];
  upstream!: EvilUpstream;
  memories!: Memories;
  voice!: VoiceUpstream;
  video!: VideoUpstream;
  db!: Database;
  /** Checks that an instance gave up and let pass, as it must when its database or Redis is too slow. */
  letThrough = 0;
  #admin = { token: "", atMs: 0 };
  #registered = 0;
  #bank: { id: Promise<string> | null; members: number } = { id: null, members: 0 };
  readonly #cleanups: (() => unknown)[] = [];

  static async open(options: StageOptions): Promise<Stage> {
    const stage = new Stage();
    try {
      await stage.#open(options);
      return stage;
    } catch (error) {
      const log = stage.instances.map(({ log }) => log.slice(-2_000)).join("\n");
      await stage.close();
      throw new Error(`the stage could not be opened: ${(error as Error).message}\n${log}`, { cause: error });
    }
  }

  async #open({ database, instances: count }: StageOptions): Promise<void> {
    const dir = mkdtempSync(join(tmpdir(), "gateway-storm-"));
    this.#cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
    const { options, drop } = await freshDatabase(database);
    this.#cleanups.push(drop);
    const redis = count > 1 ? await startOwnRedis() : null;
    if (redis) this.#cleanups.push(() => redis.kill());
    this.upstream = startEvilUpstream(this.flights);
    this.#cleanups.push(() => this.upstream.stop());
    this.memories = new Memories(dir);
    this.#cleanups.push(() => this.memories.stop());
    this.voice = startVoiceUpstream(this.flights);
    this.#cleanups.push(() => this.voice.stop());
    this.video = startVideoUpstream();
    this.#cleanups.push(() => this.video.stop());

    const pricingFile = join(dir, "prices.json");
    const prices = Object.entries(PRICES).flatMap(([name, price]) =>
      price ? [{ match: `${name}-`, ...price }] : [],
    );
    const work = { match: "work-", ...WORK_PRICES };
    await Bun.write(pricingFile, JSON.stringify({ prices: [...prices, work] }));
    const env = {
      SERVICE_PRICING_FILE: pricingFile,
      SERVICE_MEMORY_URL: this.memories.url,
      SERVICE_LOG_LEVEL: "warn",
      // Registrations are limited by address; here everyone has one of their own.
      SERVICE_TRUSTED_PROXIES: "127.0.0.1",
      SERVICE_DRAIN_GRACE_MS: "0",
      SERVICE_DRAIN_TIMEOUT_MS: "1000",
    };
    this.instances = Array.from(
      { length: count },
      () =>
        new Instance({
          databaseUrl: options.databaseUrl,
          redisUrl: redis?.url ?? null,
          env,
          onLog: (text) => {
            this.letThrough += text.split("let through").length - 1;
          },
        }),
    );
    this.#cleanups.push(() => Promise.all(this.instances.map((instance) => instance.remove())));
    const place = { ...options, dataDir: this.instances[0]!.dataDir };
    this.db = await openStorage(place);
    this.#cleanups.push(() => this.db.close());
    for (const [name, { usd, tokens }] of Object.entries(TIERS))
      await this.db.run(
        "INSERT INTO billing_tiers (name, position, monthly_usd_quota, monthly_token_quota, rpm) VALUES ($1, 9, $2, $3, $4)",
        [name, usd, tokens, GENEROUS_RPM],
      );
    await Promise.all(this.instances.map((instance) => instance.start()));
    await this.#addBackends();
    await this.admin();
  }

  async #addBackends(): Promise<void> {
    const { instances, upstream } = this;
    const first = instances[0]!;
    const add = (backend: Record<string, unknown>) => first.admin("POST", "/api/admin/backends", backend);
    for (let i = 0; i < CHAT_BACKENDS; i++)
      await add({ type: "external_api", name: `storm-${i}`, url: upstream.chatUrl });
    for (let i = 0; i < OLLAMA_BACKENDS; i++)
      await add({ type: "local-server", name: `storm-ollama-${i}`, url: upstream.ollamaUrl });
    for (let i = 0; i < ENGINE_BACKENDS; i++)
      await add({ type: "engine", name: `storm-engine-${i}`, url: upstream.engineUrl });
    for (const kind of DIALECT_KINDS)
      for (let i = 0; i < DIALECT_BACKENDS; i++)
        await add({
          ...{ type: "external_api", name: `storm-${kind}-${i}`, url: upstream.dialectUrl(kind) },
          ...{ api_key: "sk", dialects: [kind] },
        });
    const voices = Array.from({ length: MODEL_NUMBERS }, (_, i) => `voice-${i}`);
    await add({ type: "cloud-realtime", name: "storm-voice", url: this.voice.url, models: voices });
    for (const dialect of VIDEO_DIALECTS) {
      const models = VIDEO_MODES.map((mode) => videoModel(dialect, mode));
      await add({ type: dialect, name: `storm-${dialect}`, url: this.video.url, api_key: "sk", models });
      for (const mode of VIDEO_MODES) {
        const price = { model: videoModel(dialect, mode), mode, ...VIDEO_PRICES[mode] };
        await first.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
      }
    }
    const last = MODEL_NUMBERS - 1;
    const wanted = [
      `dear-${last}`,
      `embed-${last}`,
      `${PREFIXES.ollama}dear-${last}`,
      `${PREFIXES.engine}dear-${last}`,
      ...DIALECT_KINDS.map((kind) => `${PREFIXES[kind]}dear-${last}`),
      `voice-${last}`,
      ...VIDEO_DIALECTS.map((dialect) => videoModel(dialect, "per_call")),
    ];
    for (const instance of instances)
      await until("every instance routes to the upstream", async () => {
        const models = new Set(await instance.models());
        return wanted.every((model) => models.has(model));
      });
  }

  at(index: number): Instance {
    return this.instances[index % this.instances.length]!;
  }

  /** The platform administrator's token: the first account's. */
  async admin(): Promise<string> {
    if (Date.now() - this.#admin.atMs > ADMIN_TRUSTED_MS) {
      const { access_token } =
        this.#admin.atMs === 0
          ? await this.register("admin")
          : await this.at(0).rpc("auth.login", { email: "admin@example.com", password: PASSWORD });
      this.#admin = { token: access_token, atMs: Date.now() };
    }
    return this.#admin.token;
  }

  async register(name: string): Promise<{ access_token: string; user: { id: string; email: string } }> {
    const number = this.#registered++;
    const address = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
    const response = await fetch(`${this.at(0).url}/api/rpc`, {
      method: "POST",
      // The first account is made from this machine itself.
      headers: { "content-type": "application/json", ...(number > 0 && { "x-forwarded-for": address }) },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "auth.register",
        params: { email: `${name}@example.com`, password: PASSWORD, name },
      }),
    });
    const { result, error } = (await response.json()) as {
      result: { access_token: string; user: { id: string; email: string } };
      error?: { message: string };
    };
    if (error) throw new Error(`auth.register: ${error.message}`);
    return result;
  }

  /** A group whose only use is to give its members points; it is followed by another one before it is full. */
  async bank(): Promise<string> {
    if (this.#bank.members >= BANK_MEMBERS_MAX) this.#bank = { id: null, members: 0 };
    this.#bank.members++;
    this.#bank.id ??= this.admin().then(
      async (admin) => (await this.at(0).rpc("group.create", { name: "bank" }, admin)).id as string,
    );
    return this.#bank.id;
  }

  setTier(email: string, tier: string): Promise<unknown> {
    return this.at(0).rpc("billing.plan.set", { user_email: email, tier }, ADMIN_TOKEN);
  }

  /** A figure of /metrics, summed over all instances. */
  async metric(name: string): Promise<number> {
    const figures = await Promise.all(this.instances.map((instance) => instance.metric(name)));
    return figures.reduce((sum, figure) => sum + figure, 0);
  }

  /**
   * Kills an instance once nothing is under way on it, with what it has settled still in its journal, and starts it
   * again. What it held in Redis is free only when it counts as dead.
   */
  async killAndRestart(instance: Instance): Promise<void> {
    await until("no call is under way", async () => (await this.metric("gateway_calls_in_flight")) === 0);
    await instance.kill();
    await instance.start();
    await until("it routes again", async () =>
      (await instance.models()).includes(`dear-${MODEL_NUMBERS - 1}`),
    );
    if (this.instances.length > 1) await Bun.sleep(DEAD_AFTER_MS);
  }

  async close(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
  }
}
