import type { OriginOptions } from "@model-gateway/wire/client";
import { HttpOrigin } from "@model-gateway/wire/client";
import { beforeSending } from "@model-gateway/wire/turns";
import { AgentPool } from "../backends/agent-node/index.ts";
import { Bridge } from "../backends/bridge/index.ts";
import { backendFactory, localServers } from "../backends/index.ts";
import type { Config } from "../config.ts";
import type { Rooms } from "../kernel/context.ts";
import type { Payer } from "../kernel/payer.ts";
import { buildHash, VERSION } from "../kernel/version.ts";
import { Accounts } from "../rooms/accounts/index.ts";
import { Agents } from "../rooms/agents/index.ts";
import { Audit } from "../rooms/audit/index.ts";
import { Billing } from "../rooms/billing/index.ts";
import { Conversations } from "../rooms/conversations/index.ts";
import { Groups } from "../rooms/groups/index.ts";
import { type Deadlines, Inference } from "../rooms/inference/index.ts";
import { Keys } from "../rooms/keys/index.ts";
import { Ledger } from "../rooms/ledger/index.ts";
import { Memory } from "../rooms/memory/index.ts";
import { MeteringService } from "../rooms/metering/index.ts";
import { Providers } from "../rooms/providers/index.ts";
import { Realtime } from "../rooms/realtime/index.ts";
import { Requests } from "../rooms/requests/index.ts";
import { createSealer, Routing } from "../rooms/routing/index.ts";
import { Sso, type SsoSettings } from "../rooms/sso/index.ts";
import { Housekeeping, type LocalServer, LocalServers, System } from "../rooms/system/index.ts";
import { Usage } from "../rooms/usage/index.ts";
import { Video } from "../rooms/video/index.ts";
import type { Foundation } from "./foundation.ts";
import type { Life } from "./life.ts";
import { SettlingThread } from "./settling/thread.ts";

/** How long a stopping process writes journaled usage to the database; the next start finds the rest. */
const JOURNAL_DRAIN_MS = 10_000;
const JOURNAL_STOP_MS = 1_000;

interface RoomOptions {
  config: Config;
  life: Life;
  foundation: Foundation;
  /** Known once the listener is open. */
  ownPort: () => number;
  deadlines?: Partial<Deadlines>;
  localServers?: readonly LocalServer[];
}

/** Null without an issuer; the configuration was checked: with one, the rest is there. */
function ssoSettings(config: Config): SsoSettings | null {
  const { oidcIssuer: issuer, oidcClientId: clientId, publicUrl } = config;
  if (issuer === null || clientId === null || publicUrl === null) return null;
  return {
    issuer,
    clientId,
    publicUrl,
    clientSecret: config.oidcClientSecret,
    scopes: config.oidcScopes,
    label: config.oidcLabel,
    admin: config.oidcAdmin,
    groupsClaim: config.oidcGroupsClaim,
    emailDomains: config.oidcEmailDomains,
    registers: config.oidcRegistration,
    linksByEmail: config.oidcLinkByEmail,
    trustsEmail: config.oidcTrustEmail,
  };
}

/** What a room needs beyond its constructor. */
interface Needs<R> {
  /** Loads what the room needs before its first call. */
  start?(room: R): Promise<void>;
  /** Stops the room's timers and background work. */
  close?(room: R): void | Promise<void>;
}

/**
 * Opens every room, each after those that it uses. A room is constructed, registered for closing and then started,
 * so a failure at any point closes what is open.
 */
export async function openRooms(options: RoomOptions) {
  const { config, life, foundation } = options;
  const {
    clock,
    ids,
    log,
    metrics,
    tracer,
    db,
    bus,
    counter,
    jwtSecret,
    leases,
    events,
    requests: betweenInstances,
    revocations,
  } = foundation;
  const open = async <R>(name: string, room: R, { start, close }: Needs<R> = {}): Promise<R> => {
    life.opened(name, () => close?.(room));
    if (start) {
      // Subscribed before the room loads its state, so that no change is missed.
      await bus.ready();
      await start(room);
    }
    return room;
  };

  // Identity and spending limits.
  const { adminToken, registrationOpen, pointsPerUsd, pricingFile, dataDir } = config;
  const accounts = await open(
    "accounts",
    new Accounts({
      db,
      bus,
      counter,
      clock,
      ids,
      jwtSecret,
      adminToken,
      registrationOpen,
      memberInvitationsRegister: config.memberInvitationsRegister,
      passwordSignIn: config.passwordSignIn,
    }),
  );
  const audit = await open(
    "audit",
    new Audit({ db, clock, ids, log, retentionDays: config.auditRetentionDays }),
  );
  const ledger = await open("ledger", new Ledger({ db, bus, clock, ids, pointsPerUsd }));
  const usage = await open("usage", new Usage({ db, clock, retentionMonths: config.usageRetentionMonths }));
  const { balances } = ledger;
  const billing = await open(
    "billing",
    new Billing({ db, bus, clock, log, usage, balances, pointsPerUsd, pricingFile }),
    { start: (room) => room.start(), close: (room) => room.close() },
  );
  const settler = new SettlingThread({
    db,
    log,
    storage: { dataDir, databaseUrl: config.databaseUrl },
    pointsPerUsd,
  });
  life.opened("settling thread", () => settler.close());
  const money = { counter, billing, usage, ledger, pointsPerUsd };
  const metering = await open(
    "metering",
    new MeteringService({ settler, clock, ids, log, dataDir, beforeAnswers: beforeSending, ...money }),
    {
      start: (room) => room.start(),
      close: (room) => room.close(life.isPatient ? JOURNAL_DRAIN_MS : JOURNAL_STOP_MS),
    },
  );
  const groups = await open("groups", new Groups({ db, bus, clock, ids, accounts, ledger, metering }));
  const keys = await open("keys", new Keys({ db, bus, clock, ids, log, accounts, groups, usage }), {
    close: (room) => room.close(),
  });
  const sso = await open(
    "sign-in provider",
    new Sso({
      settings: ssoSettings(config),
      db,
      clock,
      ids,
      log,
      jwtSecret,
      accounts,
      groups,
      fetch: (url, init) => fetch(url, init),
    }),
  );

  // Backends and routing.
  const bridge = await open("bridge", new Bridge({ agentUrl: config.bridgeUrl, clock, log }), {
    close: (agent) => agent.close(),
  });
  const backendDeps = {
    fetch: (url: string, init?: BunFetchRequestInit) => fetch(url, init),
    openOrigin: config.usesHttpProxy ? null : (origin: OriginOptions) => new HttpOrigin(origin, clock),
    clock,
    ids,
    log,
  };
  const factory = backendFactory(backendDeps, bridge);
  const routing = await open(
    "routing",
    new Routing({
      db,
      bus,
      clock,
      log,
      metrics,
      leases,
      factory,
      choice: config.backendChoice,
      sealer: createSealer(jwtSecret),
    }),
    { start: (room) => room.start(), close: (room) => room.close() },
  );
  const agents = await open(
    "agents",
    new Agents({
      db,
      bus,
      requests: betweenInstances,
      events,
      clock,
      ids,
      log,
      backends: routing,
      createPool: (modelId) => new AgentPool({ modelId, deps: backendDeps }),
    }),
    { close: (room) => room.close() },
  );

  // What the console and the usage reports read.
  const requests = await open(
    "requests",
    new Requests({
      db,
      bus,
      events,
      clock,
      ids,
      log,
      metrics,
      groups,
      metering,
      usage,
      keptDays: config.requestRecordsDays,
      keptMax: config.requestRecordsMax,
      knownModel: (asked) => routing.knownModel(asked),
    }),
    { close: (room) => room.close() },
  );
  const providers = await open("providers", new Providers(db, clock));
  const conversations = await open("conversations", new Conversations({ db, clock, ids }));
  const memory = await open("memory", new Memory({ url: config.memoryUrl, bus, clock, log }), {
    close: (room) => room.close(),
  });
  const { ownPort, localServers: servers = localServers } = options;
  const system = await open(
    "system",
    new System({
      clock,
      version: VERSION,
      buildHash: buildHash(),
      metrics,
      backends: () => routing.entries,
      localServers: new LocalServers({ servers, create: factory.create, ownPort, routing }),
      figures: {
        agentsOnline: () => agents.agentsOnline(),
        gpuNodes: () => agents.gpuNodes(),
        modelsDeployed: () => agents.modelsDeployed(),
        modelsRoutable: () => routing.modelCount,
        providers: () => providers.count(),
        journal: () => metering.figures,
      },
    }),
    { close: (room) => room.close() },
  );

  // Rooms that spend: chat, video, realtime.
  const isInForce = ({ keyId, userId }: Pick<Payer, "keyId" | "userId">): Promise<boolean> =>
    keyId === null ? accounts.isInForce({ userId }) : keys.isInForce(keyId);
  const video = await open(
    "video",
    new Video({ db, bus, events, clock, ids, log, routing, metering, billing, revocations, isInForce }),
    { start: (room) => room.start(), close: (room) => room.close() },
  );
  const realtime = await open(
    "realtime",
    new Realtime({
      requests: betweenInstances,
      events,
      clock,
      ids,
      log,
      routing,
      metering,
      billing,
      conversations,
      revocations,
      isInForce,
    }),
    { close: (room) => room.close() },
  );
  const inference = await open(
    "inference",
    new Inference({
      db,
      isShared: bus.shared,
      clock,
      ids,
      log,
      events,
      metering,
      billing,
      routing,
      conversations,
      memory,
      revocations,
      isInForce,
      countRequest: () => system.countRequest(),
      onFailure: (failure) => system.noteFailure(failure),
      deadlines: options.deadlines,
      passesUpstreamErrors: config.upstreamErrors === "pass",
      storesResponses: config.storeResponses,
      metrics,
      tracer,
    }),
    { close: (room) => room.close() },
  );

  const sweeps = {
    "usage rows": usage.sweepRows,
    requests: requests.sweepRows,
    "request sums": requests.sweepSums,
    "captured prompts": requests.sweepCaptures,
    "refresh tokens": accounts.sweepTokens,
    "ended sessions": accounts.sweepSessions,
    "account links": accounts.people.sweepLinks,
    "used sign-ins": sso.sweepUsed,
    invitations: groups.invitations.sweep,
    "video payloads": video.sweepPayloads,
    "stored responses": inference.responses.sweep,
    "audit entries": audit.sweep,
  };
  await open("housekeeping", new Housekeeping({ clock, log, leases, sweeps }), {
    close: (sweeper) => sweeper.close(),
  });
  return {
    accounts,
    audit,
    sso,
    ledger,
    groups,
    usage,
    requests,
    billing,
    metering,
    keys,
    agents,
    providers,
    conversations,
    memory,
    routing,
    inference,
    video,
    realtime,
    system,
  } satisfies Rooms;
}

/** The rooms as the wiring has them: some expose more here than to each other. */
export type OpenRooms = Awaited<ReturnType<typeof openRooms>>;
