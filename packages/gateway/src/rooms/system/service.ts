import { isoTime } from "../../kernel/clock.ts";
import { buildHash, VERSION } from "../../kernel/version.ts";
import type { RequestFailure } from "../../observe/request-records.ts";
import type { Agents } from "../agents/index.ts";
import type { Needs } from "../foundation.ts";
import type { MeteringService } from "../metering/index.ts";
import type { Providers } from "../providers/index.ts";
import type { Entry, Routing } from "../routing/index.ts";
import type { LostCaches } from "../usage/index.ts";
import { LastHour, type Minute } from "./last-hour.ts";
import type { LocalServers } from "./local-servers.ts";
import { ServiceCount } from "./service-count.ts";

/** Those in trouble come first, so that a long list hides nothing that matters. */
const BACKENDS_SHOWN_MAX = 50;

/** Asks each instance for its last hour and its latest failures. */
const ACTIVITY = "activity";
const TOLD_WITHIN_MS = 500;

interface Activity {
  by: string;
  minutes: readonly Minute[];
  failures: readonly RecentFailure[];
}

interface SystemOptions extends Needs<"bus" | "clock" | "ids" | "instances" | "metrics"> {
  routing: Pick<Routing, "entries" | "modelCount">;
  agents: Pick<Agents, "agentsOnline" | "gpuNodes" | "modelsDeployed">;
  providers: Pick<Providers, "count">;
  metering: Pick<MeteringService, "figures">;
  localServers: LocalServers;
}

const troubleOf = ({ state }: Entry): number => ({ Healthy: 0, Degraded: 1, Unhealthy: 2 })[state];

export class System {
  readonly #buildHash = buildHash();
  readonly #count: ServiceCount;
  readonly #lastHour: LastHour;
  readonly #failures = new RecentFailures();
  readonly #me: string;
  draining = false;

  constructor(readonly options: SystemOptions) {
    this.#count = new ServiceCount(options);
    this.#lastHour = new LastHour(options.clock, options.metrics);
    this.#me = options.ids.uuid();
    options.instances?.serve(ACTIVITY, () => {
      const own: Activity = {
        by: this.#me,
        minutes: this.#lastHour.minutes(),
        failures: this.#failures.list(),
      };
      return JSON.stringify(own);
    });
  }

  get localServers(): LocalServers {
    return this.options.localServers;
  }

  async start(): Promise<void> {
    this.#count.join();
  }

  close(): void {
    this.#count.close();
    this.#lastHour.close();
  }

  noteFailure(failure: RequestFailure): void {
    this.#failures.add(failure, this.options.clock.now());
  }

  async #others(): Promise<Activity[]> {
    const told = (await this.options.instances?.askAll(ACTIVITY, "", TOLD_WITHIN_MS)) ?? [];
    return told.map((text) => JSON.parse(text) as Activity).filter(({ by }) => by !== this.#me);
  }

  /** What an operator watches: the service's last hour and latest failures, and this instance's probes of backends. */
  async activity(lostCaches: LostCaches) {
    const others = await this.#others();
    const { entries } = this.options.routing;
    const trouble = (entry: Entry) => troubleOf(entry) + (lostCaches.has(entry.config.name) ? 0.5 : 0);
    const shown = entries.toSorted((a, b) => trouble(b) - trouble(a)).slice(0, BACKENDS_SHOWN_MAX);
    return {
      ...this.#lastHour.report(others.flatMap(({ minutes }) => minutes)),
      backends_total: entries.length,
      backends: shown.map((entry) => ({
        name: entry.config.name,
        kind: entry.config.kind,
        state: entry.state,
        circuit: entry.circuits.report(this.options.clock.now()).state,
        detail: entry.detail,
        lost_cache_share: lostCaches.get(entry.config.name) ?? null,
        probes: entry.probes.list().map(({ atMs, state, latencyMs, detail }) => ({
          at: isoTime(atMs),
          state,
          latency_ms: latencyMs,
          detail,
        })),
      })),
      failures: this.#failures
        .listWith(others.flatMap(({ failures }) => failures))
        .map(({ atMs, requestId, ...failure }) => ({ at: isoTime(atMs), request_id: requestId, ...failure })),
    };
  }

  countRequest(): void {
    this.#count.add();
  }

  status() {
    const { agents } = this.options;
    return {
      agents_online: agents.agentsOnline(),
      gpu_nodes: agents.gpuNodes(),
      models_deployed: agents.modelsDeployed(),
      ...this.#count.report(),
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

const FAILURES_KEPT = 50;
const MESSAGE_LENGTH_MAX = 300;

interface RecentFailure extends RequestFailure {
  atMs: number;
  /** How often it repeated; the request id is the latest one's. */
  times: number;
}

const isAlike = (a: RequestFailure, b: RequestFailure) =>
  a.code === b.code &&
  a.status === b.status &&
  a.model === b.model &&
  a.backend === b.backend &&
  a.message === b.message;

/** The latest failures, newest first. The same one again is counted, so that a flood of one hides no other. */
export class RecentFailures {
  #failures: RecentFailure[] = [];

  add(failure: RequestFailure, atMs: number): void {
    const told = { ...failure, message: failure.message.slice(0, MESSAGE_LENGTH_MAX) };
    const index = this.#failures.findIndex((known) => isAlike(known, told));
    const times = index === -1 ? 1 : this.#failures.splice(index, 1)[0]!.times + 1;
    this.#failures.unshift({ ...told, atMs, times });
    if (this.#failures.length > FAILURES_KEPT) this.#failures.pop();
  }

  list(): readonly RecentFailure[] {
    return this.#failures;
  }

  /** Those of other instances among them. */
  listWith(others: readonly RecentFailure[]): RecentFailure[] {
    const all: RecentFailure[] = [];
    for (const failure of [...this.#failures, ...others].toSorted((a, b) => b.atMs - a.atMs)) {
      const known = all.find((each) => isAlike(each, failure));
      if (known) known.times += failure.times;
      else all.push({ ...failure });
    }
    return all.slice(0, FAILURES_KEPT);
  }
}
