import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Rooms } from "../kernel/context.ts";
import type { Ids } from "../kernel/ids.ts";
import { createLog, type Log } from "../kernel/log.ts";
import type { Deadlines } from "../rooms/inference/index.ts";
import type { LocalServer } from "../rooms/system/index.ts";
import { openFoundation } from "./foundation.ts";
import { Life } from "./life.ts";
import { openRooms } from "./rooms.ts";
import { openTransports, type TransportOptions, type Transports } from "./transports.ts";
import type { WorkerPlace } from "./workers/messages.ts";

/** This process's place among several, and what tests replace. */
export interface AppOverrides {
  worker?: WorkerPlace;
  deadlines?: Partial<Deadlines>;
  clock?: Clock;
  ids?: Ids;
  log?: Log;
  localServers?: readonly LocalServer[];
}

export interface App {
  url: string;
  port: number;
  rooms: Rooms;
  log: Log;
  /**
   * Unready first, then no new connections; open streams may finish until the deadline. `othersStay`: whether what can be
   * moved to other instances is; it may become known meanwhile.
   */
  drain(othersStay?: () => boolean): Promise<void>;
  stop(): Promise<void>;
}

class RunningApp implements App {
  readonly url: string;
  readonly port: number;
  readonly rooms: Rooms;
  readonly log: Log;

  constructor(readonly parts: TransportOptions & Transports) {
    const { config, server, rooms, foundation } = parts;
    const host = config.host.includes(":") ? `[${config.host}]` : config.host;
    this.port = server.port;
    this.url = `${config.tlsCert === null ? "http" : "https"}://${host}:${server.port}`;
    this.rooms = rooms;
    this.log = foundation.log;
  }

  async drain(othersStay = () => this.parts.foundation.bus.shared): Promise<void> {
    const { server, events, config, life, foundation } = this.parts;
    const { system, agents, memory, batches, inference, realtime } = this.rooms;
    life.isPatient = true;
    system.draining = true;
    server.retire();
    await Bun.sleep(config.drainGraceMs);
    const finished = server.stop();
    agents.retire({ othersStay: othersStay() });
    // Other instances may have something to say on streams that are read here.
    events.retire(() => foundation.bus.shared || inference.callsInFlight > 0 || realtime.sessionCount > 0);
    const ended = Promise.all([finished, batches.drained()]);
    await Promise.race([ended, Bun.sleep(config.drainTimeoutMs)]);
    await server.stop(true);
    await memory.flush();
    await life.close();
  }

  stop(): Promise<void> {
    return this.parts.life.close();
  }
}

/** How long a worker that joins others waits for the first probes of its backends before it takes requests. */
const JOIN_WITHIN_MS = 2_000;

/** Wires the whole service together. If anything fails to open, everything that was opened is closed again. */
export async function startApp(given: Config, overrides: AppOverrides = {}): Promise<App> {
  const { deadlines, clock, ids, localServers, worker = null } = overrides;
  // Of this app alone: administrators change some of it while it runs.
  const config = { ...given };
  const log = overrides.log ?? createLog({ level: config.logLevel, format: config.logFormat });
  const life = new Life(log);
  try {
    const foundation = await openFoundation({ config, life, log, clock, ids, worker });
    const ownPort = () => transports.server.port;
    const rooms = await openRooms({ config, life, foundation, ownPort, deadlines, localServers });
    // Others serve the same port already, and know their backends.
    if (worker !== null && (worker.number > 1 || worker.starts > 1))
      await rooms.routing.probed(JOIN_WITHIN_MS);
    const parts = { config, life, foundation, rooms, worker };
    const transports = openTransports(parts);
    // Others may ask at once for what this instance answers on the bus.
    await foundation.bus.ready();
    return new RunningApp({ ...parts, ...transports });
  } catch (error) {
    await life
      .close()
      .catch((unclosed) =>
        log.warn("not everything could be closed after a failed start", { error: unclosed }),
      );
    throw error;
  }
}
