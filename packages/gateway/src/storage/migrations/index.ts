import type { Migration } from "../migrate.ts";
import { accounts } from "./001-accounts.ts";
import { conversations } from "./002-conversations.ts";
import { backends } from "./003-backends.ts";
import { groups } from "./004-groups.ts";
import { ledger } from "./005-ledger.ts";
import { usage } from "./006-usage.ts";
import { video } from "./007-video.ts";
import { agents } from "./008-agents.ts";
import { leases } from "./009-leases.ts";
import { debts } from "./010-debts.ts";
import { videoBounds } from "./011-video-bounds.ts";
import { messageForms } from "./012-message-forms.ts";
import { modelRoutes } from "./013-model-routes.ts";
import { storedResponses } from "./014-stored-responses.ts";
import { people } from "./015-people.ts";
import { keyLimits } from "./016-key-limits.ts";
import { agentDeployments } from "./017-agent-deployments.ts";
import { requestRecords } from "./018-request-records.ts";
import { audit } from "./019-audit.ts";
import { usageIndexes } from "./020-usage-indexes.ts";
import { usageSettlements } from "./021-usage-settlements.ts";
import { signInProvider } from "./022-sign-in-provider.ts";
import { pricesAndCaptures } from "./023-prices-and-captures.ts";
import { usageMonths } from "./024-usage-months.ts";
import { requestMarks } from "./025-request-marks.ts";
import { requestBlocks } from "./026-request-blocks.ts";
import { responseBlocks } from "./027-response-blocks.ts";
import { responseIndexes } from "./028-response-indexes.ts";
import { recordBytes } from "./029-record-bytes.ts";
import { verifiedAddresses } from "./030-verified-addresses.ts";
import { backendIndexes } from "./031-backend-indexes.ts";

/** In order of application; a released migration is never edited, only followed by another. */
export const migrations: readonly Migration[] = [
  accounts,
  conversations,
  backends,
  groups,
  ledger,
  usage,
  video,
  agents,
  leases,
  debts,
  videoBounds,
  messageForms,
  modelRoutes,
  storedResponses,
  people,
  keyLimits,
  agentDeployments,
  requestRecords,
  audit,
  usageIndexes,
  usageSettlements,
  signInProvider,
  pricesAndCaptures,
  usageMonths,
  requestMarks,
  requestBlocks,
  responseBlocks,
  responseIndexes,
  recordBytes,
  verifiedAddresses,
  backendIndexes,
];
