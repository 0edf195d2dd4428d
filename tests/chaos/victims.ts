import { descendantsOf, signal } from "@model-gateway/agent/guard/processes.ts";
import { enginesOf, type RunningNode, startNode, type Workplace } from "@model-gateway/testing/node.ts";
import { type PostgresServer, startPostgres, startRedis } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import type { Instance } from "../cluster/support/cluster.ts";
import type { JournalingUpstream } from "./upstream.ts";

/** Something that can be killed and started again, and stopped in its tracks for a while. */
export interface Victim {
  /** SIGKILL, to all of its processes. */
  kill(): Promise<void>;
  /** Starts it again and resolves when it works. */
  start(): Promise<void>;
  /** SIGSTOP. */
  freeze(): void | Promise<void>;
  /** SIGCONT. */
  resume(): void | Promise<void>;
  /** Ends it in order and starts it again. */
  restart?(): Promise<void>;
}

/** An instance that starts while its database is away ends again, and is started again, as a supervisor would. */
const STARTS_MAX = 60;
const START_PAUSE_MS = 500;
const WORKERS_WITHIN_MS = 180_000;

export class InstanceVictim implements Victim {
  constructor(
    readonly instance: Instance,
    readonly onStarted: () => void,
  ) {}

  kill = () => this.instance.kill();
  freeze = () => this.instance.freeze();
  resume = () => this.instance.resume();

  async start(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.instance.start();
        return this.onStarted();
      } catch (error) {
        if (attempt === STARTS_MAX) throw error;
        await this.instance.kill();
        await Bun.sleep(START_PAUSE_MS);
      }
    }
  }

  async restart(): Promise<void> {
    const code = await this.instance.drain();
    if (code !== 0) throw new Error(`an instance that was asked to end did so with code ${code}`);
    await this.start();
  }
}

/** One of several workers; their supervisor starts another. */
export class WorkerVictim implements Pick<Victim, "kill" | "start"> {
  constructor(
    readonly instance: Instance,
    readonly count: number,
  ) {}

  async kill(): Promise<void> {
    const [worker] = descendantsOf(this.instance.pid);
    if (worker) signal(worker, "SIGKILL");
  }

  async start(): Promise<void> {
    const isWhole = () => this.instance.metric("gateway_worker_up").then((up) => up === this.count);
    await until("all workers are up", () => isWhole().catch(() => false), WORKERS_WITHIN_MS);
  }
}

/** Postgres is many processes, and only the first is its parent's child. */
export class PostgresVictim implements Victim {
  private constructor(public server: PostgresServer) {}

  static async open(dir: string): Promise<PostgresVictim> {
    return new PostgresVictim(await startPostgres(dir));
  }

  #signal(name: NodeJS.Signals): number[] {
    const { pid } = this.server.child;
    const pids = pid === undefined ? [] : [pid, ...descendantsOf(pid)];
    for (const each of pids) signal(each, name);
    return pids;
  }

  async kill(): Promise<void> {
    const { child } = this.server;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    this.#signal("SIGKILL");
    await ended;
  }

  async start(): Promise<void> {
    this.server = await this.server.restart();
  }

  freeze(): void {
    this.#signal("SIGSTOP");
  }

  resume(): void {
    this.#signal("SIGCONT");
  }
}

/** Redis keeps nothing: whoever kills it, empties it. */
export class RedisVictim implements Victim {
  private constructor(
    readonly dir: string,
    public server: Awaited<ReturnType<typeof startRedis>>,
  ) {}

  static async open(dir: string): Promise<RedisVictim> {
    return new RedisVictim(dir, await startRedis(dir));
  }

  async kill(): Promise<void> {
    const { child } = this.server;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async start(): Promise<void> {
    this.server = await startRedis(this.dir, this.server.port);
  }

  freeze(): void {
    this.server.child.kill("SIGSTOP");
  }

  resume(): void {
    this.server.child.kill("SIGCONT");
  }
}

export class UpstreamVictim implements Pick<Victim, "kill" | "start"> {
  constructor(readonly upstream: JournalingUpstream) {}

  async kill(): Promise<void> {
    this.upstream.stop();
  }

  async start(): Promise<void> {
    this.upstream.startAgain();
  }
}

export interface NodeOptions {
  gateway: string;
  workplace: Workplace;
  token: string;
  /** Resolves when its model can be called. */
  untilServing(): Promise<void>;
}

/** The node program. When it is killed, its guard ends the engines. */
export class NodeVictim implements Victim {
  node: RunningNode | null = null;

  constructor(readonly options: NodeOptions) {}

  async launch(): Promise<void> {
    this.node = startNode(this.options);
  }

  async kill(): Promise<void> {
    this.node?.kill("SIGKILL");
    await this.node?.exited;
  }

  async start(): Promise<void> {
    await this.launch();
    await this.options.untilServing();
  }

  freeze(): void {
    this.node?.kill("SIGSTOP");
  }

  resume(): void {
    this.node?.kill("SIGCONT");
  }
}

/** The engine on the node, which its node starts again. */
export class EngineVictim implements Victim {
  constructor(readonly options: NodeOptions) {}

  async #signal(name: NodeJS.Signals): Promise<number[]> {
    const pids = await enginesOf(this.options.workplace);
    for (const pid of pids) signal(pid, name);
    return pids;
  }

  async kill(): Promise<void> {
    const killed = await this.#signal("SIGKILL");
    await until("the engine has ended", async () => {
      const left = await enginesOf(this.options.workplace);
      return !killed.some((pid) => left.includes(pid));
    });
  }

  start = () => this.options.untilServing();
  freeze = async () => void (await this.#signal("SIGSTOP"));
  resume = async () => void (await this.#signal("SIGCONT"));
}
