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

export interface AppOverrides {
  worker?: WorkerPlace;
  // What tests replace:
  deadlines?: Partial<Deadlines>;
  clock?: Clock;
  ids?: Ids;
  log?: Log;
  localServers?: readonly LocalServer[];
}

export class App {
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

  /**
   * Reports unready, then takes no new connections; open streams may finish until the deadline. If `othersStay`, what can
   * be moved to other instances is moved; it is called after the grace period.
   */
  async drain(othersStay = () => this.parts.foundation.bus.shared): Promise<void> {
    const { server, events, config, life, foundation } = this.parts;
    const { system, agents, memory, batches, inference, realtime } = this.rooms;
    life.isPatient = true;
    system.draining = true;
    server.retire();
    await Bun.sleep(config.drainGraceMs);
    const finished = server.stop();
    agents.retire({ othersStay: othersStay() });
    // Other instances may still emit on streams that are read here.
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

/** How long a worker that joins others waits for the first probes of its backends. */
const JOIN_WITHIN_MS = 2_000;

/** Wires the service together. If anything fails to open, everything that is open is closed again. */
export async function startApp(given: Config, overrides: AppOverrides = {}): Promise<App> {
  const { deadlines, clock, ids, localServers, worker = null } = overrides;
  // A copy for this app: administrators change some settings while it runs.
  const config = { ...given };
  const log = overrides.log ?? createLog({ level: config.logLevel, format: config.logFormat });
  const life = new Life(log);
  try {
    const foundation = await openFoundation({ config, life, log, clock, ids, worker });
    const ownPort = () => transports.server.port;
    const rooms = await openRooms({ config, life, foundation, ownPort, deadlines, localServers });
    // Others serve the port already, and have probed their backends.
    if (worker !== null && (worker.number > 1 || worker.starts > 1))
      await rooms.routing.probed(JOIN_WITHIN_MS);
    const parts = { config, life, foundation, rooms, worker };
    const transports = openTransports(parts);
    await foundation.bus.ready();
    return new App({ ...parts, ...transports });
  } catch (error) {
    const unclosed = (reason: unknown) =>
      log.warn("not everything could be closed after a failed start", { error: reason });
    await life.close().catch(unclosed);
    throw error;
  }
}
