import { BoundedMap } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import { buildHash, VERSION } from "../../kernel/version.ts";
import type { Agents } from "../agents/index.ts";
import type { Needs } from "../foundation.ts";
import type { MeteringService } from "../metering/index.ts";
import type { Providers } from "../providers/index.ts";
import type { Requests } from "../requests/index.ts";
import type { Entry, Routing } from "../routing/index.ts";
import type { LostCaches } from "../usage/index.ts";
import type { LocalServers } from "./local-servers.ts";
import type { Settings } from "./settings.ts";

const TOPIC = "service-count";
const PUBLISH_EVERY_MS = 50;
/** Including ended processes. */
const PROCESSES_MAX = 1_000;
const BACKENDS_SHOWN_MAX = 50;
const TROUBLE = { Healthy: 0, Degraded: 1, Unhealthy: 2 };
interface SystemOptions extends Needs<"bus" | "clock"> {
  routing: Pick<Routing, "entries" | "modelCount">;
  agents: Pick<Agents, "figures">;
  providers: Pick<Providers, "count">;
  metering: Pick<MeteringService, "figures">;
  requests: Pick<Requests, "lastHour">;
  localServers: LocalServers;
  settings: Settings;
}

export class System {
  readonly #buildHash = buildHash();
  readonly #count: ServiceCount;
  readonly localServers: LocalServers;
  readonly settings: Settings;
  draining = false;

  constructor(readonly options: SystemOptions) {
    this.#count = new ServiceCount(options);
    this.localServers = options.localServers;
    this.settings = options.settings;
  }

  async start(): Promise<void> {
    this.#count.join();
  }

  close(): void {
    this.#count.close();
  }

  /** For operators: the service's last hour and latest failures, and this instance's probes. */
  async activity(lostCaches: LostCaches) {
    const { entries } = this.options.routing;
    const trouble = ({ state, config }: Entry) => TROUBLE[state] + (lostCaches.has(config.name) ? 0.5 : 0);
    // Those in trouble come first, so that a long list does not hide them.
    const shown = entries.toSorted((a, b) => trouble(b) - trouble(a)).slice(0, BACKENDS_SHOWN_MAX);
    return {
      ...(await this.options.requests.lastHour()),
      backends_total: entries.length,
      backends: shown.map((entry) => ({
        name: entry.config.name,
        kind: entry.config.kind,
        state: entry.state,
        circuit: entry.circuits.report(this.options.clock.now()).state,
        detail: entry.detail,
        lost_cache_share: lostCaches.get(entry.config.name) ?? null,
        probes: entry.probes.map(({ atMs, state, latencyMs, detail }) => ({
          at: isoTime(atMs),
          state,
          latency_ms: latencyMs,
          detail,
        })),
      })),
    };
  }

  countRequest(): void {
    this.#count.add();
  }

  status() {
    return { ...this.options.agents.figures(), ...this.#count.report() };
  }

  async readiness() {
    return { ...(await this.health()), usage_journal: this.options.metering.figures };
  }

  async health() {
    const { routing, providers } = this.options;
    return {
      status: "ok",
      version: VERSION,
      build_hash: this.#buildHash,
      models: routing.modelCount,
      providers: await providers.count(),
    };
  }
}

interface CountNews {
  startedAtMs: number;
  /** Counts by process: a process's own, or all known ones for a process that has just joined. */
  totals: [process: string, total: number][];
  isAnswer?: boolean;
}

class PerMinute {
  #slots = new Uint32Array(60);
  #second = 0;

  #advance(nowMs: number): number {
    const second = Math.floor(nowMs / 1000);
    const passed = second - this.#second;
    if (passed >= 60 || passed < 0) this.#slots.fill(0);
    else for (let s = this.#second + 1; s <= second; s++) this.#slots[s % 60] = 0;
    this.#second = second;
    return second % 60;
  }

  add(count: number, nowMs: number): void {
    this.#slots[this.#advance(nowMs)]! += count;
  }

  sum(nowMs: number): number {
    this.#advance(nowMs);
    return this.#slots.reduce((total, count) => total + count, 0);
  }
}

/** Request count and age of the whole service. Processes exchange their counts. */
class ServiceCount {
  readonly #me = crypto.randomUUID();
  readonly #totals = new BoundedMap<string, number>(PROCESSES_MAX);
  readonly #perMinute = new PerMinute();
  #own = 0;
  #startedAtMs: number;
  #cancelPublish: (() => void) | null = null;

  constructor(readonly options: Needs<"bus" | "clock">) {
    const { bus, clock } = options;
    this.#startedAtMs = clock.now();
    if (!bus.shared) return;
    bus.subscribe(TOPIC, (message) => this.#receive(JSON.parse(message) as CountNews));
    bus.onGap(() => this.join());
  }

  /** Announces this process; the others answer with what they know. */
  join(): void {
    this.#publish([]);
  }

  close(): void {
    this.#cancelPublish?.();
  }

  add(): void {
    const { bus, clock } = this.options;
    this.#own++;
    this.#perMinute.add(1, clock.now());
    if (!bus.shared) return;
    this.#cancelPublish ??= clock.after(PUBLISH_EVERY_MS, () => {
      this.#cancelPublish = null;
      this.#publish([[this.#me, this.#own]]);
    });
  }

  #publish(totals: CountNews["totals"], isAnswer?: true): void {
    const news: CountNews = { startedAtMs: this.#startedAtMs, totals, isAnswer };
    this.options.bus.publish(TOPIC, JSON.stringify(news));
  }

  #receive({ startedAtMs, totals, isAnswer }: CountNews): void {
    this.#startedAtMs = Math.min(this.#startedAtMs, startedAtMs);
    for (const [process, total] of totals) {
      const more = process === this.#me ? 0 : total - (this.#totals.get(process) ?? 0);
      if (more <= 0) continue;
      this.#totals.set(process, total);
      if (!isAnswer) this.#perMinute.add(more, this.options.clock.now());
    }
    if (totals.length === 0 && !isAnswer)
      this.#publish([...this.#totals.entries(), [this.#me, this.#own]], true);
  }

  report() {
    const nowMs = this.options.clock.now();
    const others = [...this.#totals.entries()].reduce((sum, [, total]) => sum + total, 0);
    return {
      requests_total: this.#own + others,
      requests_per_minute: this.#perMinute.sum(nowMs),
      uptime_seconds: Math.max(0, Math.floor((nowMs - this.#startedAtMs) / 1000)),
    };
  }
}
