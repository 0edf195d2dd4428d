import * as accounts from "./accounts/index.ts";
import * as agents from "./agents/index.ts";
import * as alerts from "./alerts/index.ts";
import * as audit from "./audit/index.ts";
import * as batches from "./batches/index.ts";
import * as billing from "./billing/index.ts";
import type { Captures } from "./captures/index.ts";
import * as conversations from "./conversations/index.ts";
import * as groups from "./groups/index.ts";
import * as inference from "./inference/index.ts";
import * as keys from "./keys/index.ts";
import * as ledger from "./ledger/index.ts";
import * as memory from "./memory/index.ts";
import type { Metering } from "./metering/index.ts";
import * as providers from "./providers/index.ts";
import * as realtime from "./realtime/index.ts";
import * as requests from "./requests/index.ts";
import * as routing from "./routing/index.ts";
import * as sso from "./sso/index.ts";
import * as system from "./system/index.ts";
import * as usage from "./usage/index.ts";
import * as video from "./video/index.ts";

/** Every room's surface, one line a room; the registry, the documents and the client's types come from here. */
export const surfaces = [
  accounts,
  sso,
  ledger,
  groups,
  keys,
  providers,
  conversations,
  usage,
  requests,
  billing,
  memory,
  routing,
  inference,
  video,
  batches,
  realtime,
  agents,
  audit,
  alerts,
  system,
] as const;

/** What handlers reach as `rooms`: each room's face, typed, without the kernel knowing them. */
declare module "../kernel/context.ts" {
  interface Rooms {
    accounts: accounts.Accounts;
    agents: agents.Agents;
    alerts: alerts.Alerts;
    audit: audit.Audit;
    batches: batches.Batches;
    billing: billing.Billing;
    captures: Captures;
    conversations: conversations.Conversations;
    groups: groups.Groups;
    inference: inference.Inference;
    keys: keys.Keys;
    ledger: ledger.Ledger;
    memory: memory.Memory;
    metering: Metering;
    providers: providers.Providers;
    realtime: realtime.Realtime;
    requests: requests.Requests;
    routing: routing.Routing;
    sso: sso.Sso;
    system: system.System;
    usage: usage.Usage;
    video: video.Video;
  }
}
