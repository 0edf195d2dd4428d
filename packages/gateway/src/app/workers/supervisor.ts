import { join, relative } from "node:path";
import type { Subprocess } from "bun";
import { WorkerHub } from "../../bus/workers/hub.ts";
import type { Config } from "../../config.ts";
import { systemClock } from "../../kernel/clock.ts";
import { randomIds } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { FromWorker, ToWorker } from "./messages.ts";

const SOCKET_FILE = "workers.sock";
/** Linux allows 107. */
const SOCKET_PATH_LENGTH_MAX = 100;
/** Delay before a worker is restarted; doubled each time it ends soon. */
const RESTART_MS = { first: 100, most: 10_000 };
/** A worker that ran for this long did not end soon. */
const SETTLED_MS = 60_000;
/** Time for closing after the drain; then workers are killed. */
const CLOSING_MS = 20_000;

interface SupervisorOptions {
  config: Config;
  log: Log;
  command: readonly string[];
}

type Ready = Extract<FromWorker, { ready: unknown }>["ready"];

class Seat {
  child: Subprocess<"ignore", "inherit", "inherit"> | null = null;
  starts = 0;
  readyAtMs: number | null = null;
  restartMs = RESTART_MS.first;
  cancelRestart: () => void = () => {};
  waiting: PromiseWithResolvers<Ready> | null = null;
  failure: { message: string; code?: string } | null = null;

  constructor(readonly number: number) {}
}

/** The path of the workers' socket, relative if that is shorter: paths of sockets must be short. */
export function socketPath(dataDir: string): string {
  const path = join(dataDir, SOCKET_FILE);
  const fromHere = relative(process.cwd(), path);
  const shorter = fromHere.length < path.length ? fromHere : path;
  if (Buffer.byteLength(shorter) > SOCKET_PATH_LENGTH_MAX)
    throw new Error(
      `SERVICE_DATA_DIR: ${dataDir} is too long for the socket that workers share; name a directory of at most ${SOCKET_PATH_LENGTH_MAX - SOCKET_FILE.length - 1} bytes`,
    );
  return shorter;
}

export class Supervisor {
  readonly #seats: Seat[];
  readonly #hub: WorkerHub | null;
  readonly #socketPath: string;
  readonly #service = randomIds.uuid();
  #port: number;
  #isStopping = false;
  #whenEnded: (() => void) | null = null;
  url = "";
  introduction = "";

  private constructor(readonly options: SupervisorOptions) {
    const { config, log } = options;
    this.#port = config.port;
    this.#seats = Array.from({ length: config.workers }, (_, i) => new Seat(i + 1));
    this.#socketPath = config.redisUrl === null ? socketPath(config.dataDir) : "";
    this.#hub =
      config.redisUrl === null ? new WorkerHub({ path: this.#socketPath, clock: systemClock, log }) : null;
  }

  static async start(options: SupervisorOptions): Promise<Supervisor> {
    const supervisor = new Supervisor(options);
    const [first, ...others] = supervisor.#seats as [Seat, ...Seat[]];
    try {
      // The first starts alone: it migrates the database, creates missing secrets and finds a free port.
      const { url, port, introduction } = await supervisor.#start(first);
      supervisor.#port = port;
      await Promise.all(others.map((seat) => supervisor.#start(seat)));
      supervisor.url = url;
      supervisor.introduction = introduction;
      return supervisor;
    } catch (error) {
      supervisor.kill();
      throw error;
    }
  }

  async drain(): Promise<void> {
    const { drainGraceMs, drainTimeoutMs } = this.options.config;
    this.#isStopping = true;
    for (const seat of this.#seats) {
      seat.cancelRestart();
      this.#send(seat, { drain: true });
    }
    const ended = new Promise<void>((resolve) => {
      this.#whenEnded = resolve;
      this.#checkEnded();
    });
    const late = systemClock.after(drainGraceMs + drainTimeoutMs + CLOSING_MS, () => {
      this.options.log.error("workers did not stop in time and are killed");
      for (const { child } of this.#seats) child?.kill("SIGKILL");
    });
    await ended;
    late();
    this.#hub?.close();
  }

  kill(): void {
    this.#isStopping = true;
    for (const { child, cancelRestart } of this.#seats) {
      cancelRestart();
      child?.kill("SIGKILL");
    }
    this.#hub?.close();
  }

  #start(seat: Seat): Promise<Ready> {
    const { command, config } = this.options;
    seat.starts++;
    seat.readyAtMs = null;
    seat.failure = null;
    const child = Bun.spawn([...command], {
      stdio: ["ignore", "inherit", "inherit"],
      env: process.env,
      serialization: "json",
      ipc: (message) => this.#received(seat, message),
      onExit: ({ signalCode: signal }, code) => this.#ended(seat, { code, signal }),
    });
    seat.child = child;
    this.#send(seat, {
      start: {
        config: {
          ...config,
          port: this.#port,
          reusePort: true,
          connectionsMax:
            config.connectionsMax === null ? null : Math.ceil(config.connectionsMax / config.workers),
        },
        place: {
          number: seat.number,
          count: config.workers,
          starts: seat.starts,
          service: this.#service,
          supervisorPath: this.#hub === null ? null : this.#socketPath,
        },
      },
    });
    seat.waiting = Promise.withResolvers<Ready>();
    return seat.waiting.promise;
  }

  #send({ child }: Seat, message: ToWorker): void {
    try {
      child?.send(message);
    } catch {}
  }

  #received(seat: Seat, data: unknown): void {
    if (typeof data !== "object" || data === null) return;
    const message = data as FromWorker;
    if ("ready" in message) {
      seat.readyAtMs = systemClock.elapsed();
      seat.waiting?.resolve(message.ready);
      seat.waiting = null;
    } else seat.failure = message.failed;
  }

  #ended(seat: Seat, { code, signal }: { code: number | null; signal: string | number | null }): void {
    seat.child = null;
    const { failure, waiting } = seat;
    seat.waiting = null;
    const reason = failure?.message ?? `worker ${seat.number} ended before it was ready`;
    waiting?.reject(Object.assign(new Error(reason), failure?.code && { code: failure.code }));
    this.#checkEnded();
    // A first worker that never was ready fails the start of the service.
    const failedFirst = seat.starts === 1 && seat.readyAtMs === null;
    if (this.#isStopping || failedFirst) return;
    this.#restart(seat, { code, signal, ...(failure && { failure: failure.message }) });
  }

  #restart(seat: Seat, fields: Record<string, unknown>): void {
    const { log } = this.options;
    const { readyAtMs } = seat;
    const hasSettled = readyAtMs !== null && systemClock.elapsed() - readyAtMs >= SETTLED_MS;
    const delayMs = hasSettled ? RESTART_MS.first : seat.restartMs;
    seat.restartMs = Math.min(delayMs * 2, RESTART_MS.most);
    log.error("a worker ended; another one is started", {
      ...fields,
      worker: seat.number,
      delay_ms: delayMs,
    });
    seat.cancelRestart = systemClock.after(delayMs, () => {
      this.#start(seat).then(
        () => log.info("a worker was started again", { worker: seat.number, starts: seat.starts }),
        () => {},
      );
    });
  }

  #checkEnded(): void {
    if (this.#seats.every(({ child }) => child === null)) this.#whenEnded?.();
  }
}
