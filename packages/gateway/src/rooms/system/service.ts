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
import { ServiceCount } from "./service-count.ts";
import type { Settings } from "./settings.ts";

/** Failing ones come first, so that a long list does not hide them. */
const BACKENDS_SHOWN_MAX = 50;

interface SystemOptions extends Needs<"bus" | "clock"> {
  routing: Pick<Routing, "entries" | "modelCount">;
  agents: Pick<Agents, "figures">;
  providers: Pick<Providers, "count">;
  metering: Pick<MeteringService, "figures">;
  requests: Pick<Requests, "lastHour">;
  localServers: LocalServers;
  settings: Settings;
}

const troubleOf = ({ state }: Entry): number => ({ Healthy: 0, Degraded: 1, Unhealthy: 2 })[state];

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
    const trouble = (entry: Entry) => troubleOf(entry) + (lostCaches.has(entry.config.name) ? 0.5 : 0);
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

  /** Health, plus early warning signs for operators. */
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
