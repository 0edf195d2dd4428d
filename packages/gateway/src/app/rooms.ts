import type { OriginOptions } from "@model-gateway/wire/client";
import { HttpOrigin } from "@model-gateway/wire/client";
import { beforeSending } from "@model-gateway/wire/turns";
import { AgentPool } from "../backends/agent-node/index.ts";
import { Bridge } from "../backends/bridge/index.ts";
import { backendFactory, localServers } from "../backends/index.ts";
import { type Config, changeableSettings } from "../config.ts";
import type { Rooms } from "../kernel/context.ts";
import type { Payer } from "../kernel/payer.ts";
import { Accounts } from "../rooms/accounts/index.ts";
import { Agents } from "../rooms/agents/index.ts";
import { Alerts } from "../rooms/alerts/index.ts";
import { Audit } from "../rooms/audit/index.ts";
import { Batches } from "../rooms/batches/index.ts";
import { Billing } from "../rooms/billing/index.ts";
import { Captures } from "../rooms/captures/index.ts";
import { Conversations } from "../rooms/conversations/index.ts";
import type { Foundation } from "../rooms/foundation.ts";
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
import { Housekeeping, type LocalServer, LocalServers, Settings, System } from "../rooms/system/index.ts";
import { Usage } from "../rooms/usage/index.ts";
import { Video } from "../rooms/video/index.ts";
import { SettlingThread } from "./journal-thread/thread.ts";
import type { Life } from "./life.ts";

/** How long a stopping process writes journaled usage to the database; the next start writes the rest. */
const JOURNAL_DRAIN_MS = 10_000;
const JOURNAL_STOP_MS = 1_000;

interface RoomOptions {
  config: Config;
  life: Life;
  foundation: Foundation;
  ownPort: () => number;
  deadlines?: Partial<Deadlines>;
  localServers?: readonly LocalServer[];
}

/** Null without an issuer. Reading the configuration has checked that the other settings go with it. */
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

type Done = void | Promise<void>;
interface Needs<R> {
  start?(room: R): Done;
  close?(room: R): Done;
}

const CLOSES: Needs<{ close(): Done }> = { close: (room) => room.close() };
const STARTS_AND_CLOSES: Needs<{ start(): Done; close(): Done }> = {
  start: (room) => room.start(),
  ...CLOSES,
};

/** A room is registered for closing before it starts, so that a failed start closes it, too. */
const opener =
  ({ bus }: Foundation, life: Life) =>
  async <R>(name: string, room: R, { start, close }: Needs<NoInfer<R>> = {}): Promise<R> => {
    life.opened(name, () => close?.(room));
    if (start) {
      // Subscribed before the room loads its state, so that no change is missed.
      await bus.ready();
      await start(room);
    }
    return room;
  };

const networkOf = (config: Config, { clock, ids, log }: Foundation) => ({
  fetch: (url: string, init?: BunFetchRequestInit) => fetch(url, init),
  openOrigin: config.usesHttpProxy ? null : (origin: OriginOptions) => new HttpOrigin(origin, clock),
  clock,
  ids,
  log,
});

export async function openRooms({ config, life, foundation, ownPort, deadlines, ...options }: RoomOptions) {
  const { db, bus, clock, ids, log, leases } = foundation;
  const { pointsPerUsd, dataDir, databaseUrl, pricingFile } = config;
  const open = opener(foundation, life);

  const settings = await open(
    "settings",
    new Settings({ ...foundation, settings: changeableSettings(config) }),
    STARTS_AND_CLOSES,
  );

  // Identity and spending limits.
  const { adminToken, passwordSignIn } = config;
  const identity = { adminToken, passwordSignIn, signUp: config };
  const accounts = await open("accounts", new Accounts({ ...foundation, ...identity }));
  const audit = await open(
    "audit",
    new Audit({ ...foundation, dataDir, settings: config }),
    STARTS_AND_CLOSES,
  );
  const ledger = await open("ledger", new Ledger({ ...foundation, pointsPerUsd }));
  const usage = await open("usage", new Usage({ db, clock, settings: config }));
  const { balances } = ledger;
  const pricing = { usage, balances, pointsPerUsd, pricingFile };
  const billing = await open("billing", new Billing({ ...foundation, ...pricing }), STARTS_AND_CLOSES);
  const settler = new SettlingThread({ db, log, storage: { dataDir, databaseUrl }, pointsPerUsd });
  life.opened("settling thread", () => settler.close());
  const money = { settler, billing, usage, ledger, pointsPerUsd, dataDir, beforeAnswers: beforeSending };
  const refusesUnpriced = config.unpriced === "refuse";
  const metering = await open("metering", new MeteringService({ ...foundation, ...money, refusesUnpriced }), {
    start: (room) => room.start(),
    close: (room) => room.close(life.isPatient ? JOURNAL_DRAIN_MS : JOURNAL_STOP_MS),
  });
  const groups = await open("groups", new Groups({ ...foundation, accounts, ledger, metering, usage }));
  const keys = await open("keys", new Keys({ ...foundation, accounts, groups, usage }), CLOSES);
  const network = networkOf(config, foundation);
  const signIn = { settings: ssoSettings(config), accounts, groups, fetch: network.fetch };
  const sso = await open("sign-in provider", new Sso({ ...foundation, ...signIn }));

  // Backends and routing.
  const bridge = await open("bridge", new Bridge({ agentUrl: config.bridgeUrl, clock, log }), CLOSES);
  const factory = backendFactory(network, bridge);
  const choosing = { factory, choice: config.backendChoice, sealer: createSealer(foundation.jwtSecret) };
  const routing = await open("routing", new Routing({ ...foundation, ...choosing }), STARTS_AND_CLOSES);
  const { nodesOnLoopback: dialsLoopback } = config;
  const createPool = (modelId: string) => new AgentPool({ modelId, deps: network, dialsLoopback });
  const agents = await open("agents", new Agents({ ...foundation, backends: routing, createPool }), CLOSES);

  // What the console and the usage reports read.
  const knownModel = (asked: string) => routing.knownModel(asked);
  const captures = await open("captures", new Captures({ db, clock, log }), CLOSES);
  const requests = await open(
    "requests",
    new Requests({ ...foundation, captures, groups, metering, usage, knownModel, settings: config }),
    CLOSES,
  );
  const providers = await open("providers", new Providers(db, clock));
  const conversations = await open("conversations", new Conversations({ db, clock, ids }));
  const memory = await open("memory", new Memory({ ...foundation, url: config.memoryUrl }), CLOSES);
  const { localServers: servers = localServers } = options;
  const found = new LocalServers({ servers, create: factory.create, ownPort, routing });
  const watched = { routing, agents, providers, metering, requests, localServers: found, settings };
  const system = await open("system", new System({ ...foundation, ...watched }), STARTS_AND_CLOSES);

  const observed = { settings: config, post: network.fetch, routing, agents, metering };
  const alerts = await open("alerts", new Alerts({ ...foundation, ...observed }), CLOSES);

  // Rooms that spend: chat, video, realtime.
  const isInForce = ({ keyId, userId }: Pick<Payer, "keyId" | "userId">): Promise<boolean> =>
    keyId === null ? accounts.isInForce({ userId }) : keys.isInForce(keyId);
  const spending = { ...foundation, routing, metering, billing, isInForce };
  const video = await open("video", new Video(spending), STARTS_AND_CLOSES);
  const realtime = await open("realtime", new Realtime({ ...spending, conversations }), CLOSES);
  const inference = await open(
    "inference",
    new Inference({
      ...spending,
      conversations,
      memory,
      isShared: bus.shared,
      countRequest: () => system.countRequest(),
      deadlines,
      passesUpstreamErrors: config.upstreamErrors === "pass",
      storesResponses: config.storeResponses,
    }),
    CLOSES,
  );

  const batches = await open(
    "batches",
    new Batches({ ...foundation, inference, keys, metering }),
    STARTS_AND_CLOSES,
  );

  const rooms = { accounts, audit, sso, ledger, groups, usage, requests, billing, metering, keys, agents };
  const others = { captures, providers, conversations, memory, routing, inference, video, realtime, system };
  const all = { ...rooms, ...others, alerts, batches } satisfies Rooms;
  await open("housekeeping", new Housekeeping({ clock, log, bus, leases, sweeps: sweepsOf(all) }), CLOSES);
  return all;
}

const sweepsOf = (rooms: Rooms) => ({
  "usage rows": rooms.usage.sweepRows,
  requests: rooms.requests.sweepRows,
  "request sums": rooms.requests.sweepSums,
  "captured prompts": rooms.captures.sweep,
  "refresh tokens": rooms.accounts.sweepTokens,
  "ended sessions": rooms.accounts.sweepSessions,
  "account links": rooms.accounts.people.sweepLinks,
  "used sign-ins": rooms.sso.sweepUsed,
  invitations: rooms.groups.invitations.sweep,
  "redemption codes": rooms.groups.codes.sweep,
  refills: rooms.groups.sweepRefills,
  "video payloads": rooms.video.sweepPayloads,
  "stored responses": rooms.inference.responses.sweep,
  files: rooms.batches.sweepFiles,
  batches: rooms.batches.sweepBatches,
  "audit entries": rooms.audit.sweep,
});

/** The rooms' classes, which have more members than rooms see of each other. */
export type OpenRooms = Awaited<ReturnType<typeof openRooms>>;
