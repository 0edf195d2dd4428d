import { type Clock, isoTime } from "../../kernel/clock.ts";
import { buildHash, VERSION } from "../../kernel/version.ts";
import type { Metrics } from "../../observe/metrics.ts";
import type { RequestFailure } from "../../observe/request-records.ts";
import type { Agents } from "../agents/index.ts";
import type { MeteringService } from "../metering/index.ts";
import type { Providers } from "../providers/index.ts";
import type { Entry, Routing } from "../routing/index.ts";
import { LastHour } from "./last-hour.ts";
import type { LocalServers } from "./local-servers.ts";
import { RecentFailures } from "./recent-failures.ts";

/** Those in trouble come first, so that a long list hides nothing that matters. */
const BACKENDS_SHOWN_MAX = 50;

interface SystemOptions {
  clock: Clock;
  metrics: Metrics;
  routing: Pick<Routing, "entries" | "modelCount">;
  agents: Pick<Agents, "agentsOnline" | "gpuNodes" | "modelsDeployed">;
  providers: Pick<Providers, "count">;
  metering: Pick<MeteringService, "figures">;
  localServers: LocalServers;
}

/** A count over the last 60 seconds, in one-second slots. */
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

  add(nowMs: number): void {
    this.#slots[this.#advance(nowMs)]! += 1;
  }

  sum(nowMs: number): number {
    this.#advance(nowMs);
    return this.#slots.reduce((total, count) => total + count, 0);
  }
}

const troubleOf = ({ state }: Entry): number => ({ Healthy: 0, Degraded: 1, Unhealthy: 2 })[state];

export class System {
  readonly #buildHash = buildHash();
  readonly #startedAtMs: number;
  readonly #perMinute = new PerMinute();
  #requestsTotal = 0;
  readonly #lastHour: LastHour;
  readonly #failures = new RecentFailures();
  draining = false;

  constructor(readonly options: SystemOptions) {
    this.#startedAtMs = options.clock.now();
    this.#lastHour = new LastHour(options.clock, options.metrics);
  }

  get localServers(): LocalServers {
    return this.options.localServers;
  }

  close(): void {
    this.#lastHour.close();
  }

  /** A request did not get its answer. */
  noteFailure(failure: RequestFailure): void {
    this.#failures.add(failure, this.options.clock.now());
  }

  /** What an operator watches: this instance's last hour, its backends' probes and its latest failures. */
  activity() {
    const { entries } = this.options.routing;
    const shown = entries.toSorted((a, b) => troubleOf(b) - troubleOf(a)).slice(0, BACKENDS_SHOWN_MAX);
    return {
      ...this.#lastHour.report(),
      backends_total: entries.length,
      backends: shown.map((entry) => ({
        name: entry.config.name,
        kind: entry.config.kind,
        state: entry.state,
        circuit: entry.circuit.report(this.options.clock.now()).state,
        detail: entry.detail,
        probes: entry.probes.list().map(({ atMs, state, latencyMs, detail }) => ({
          at: isoTime(atMs),
          state,
          latency_ms: latencyMs,
          detail,
        })),
      })),
      failures: this.#failures.list().map(({ atMs, requestId, ...failure }) => ({
        at: isoTime(atMs),
        request_id: requestId,
        ...failure,
      })),
    };
  }

  /** Counts one inference request. */
  countRequest(): void {
    this.#requestsTotal++;
    this.#perMinute.add(this.options.clock.now());
  }

  status() {
    const { clock, agents } = this.options;
    const nowMs = clock.now();
    return {
      agents_online: agents.agentsOnline(),
      gpu_nodes: agents.gpuNodes(),
      models_deployed: agents.modelsDeployed(),
      requests_total: this.#requestsTotal,
      requests_per_minute: this.#perMinute.sum(nowMs),
      uptime_seconds: Math.max(0, Math.floor((nowMs - this.#startedAtMs) / 1000)),
    };
  }

  /** Health with what an operator watches before the service is in trouble. */
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
