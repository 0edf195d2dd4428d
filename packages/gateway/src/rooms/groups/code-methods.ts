import { z } from "zod";
import { defineMethod, GivenId, Timestamp } from "../../kernel/method.ts";

export const DAY_SECONDS = 24 * 3600;
const POINTS_MAX = 1_000_000_000_000;

export const GroupId = z.guid().toLowerCase();
export const Points = z.int().min(1).max(POINTS_MAX);
export const Note = z.string().trim().max(200).optional();

const ISSUING = {
  auth: "admin",
  hint: "codes issue points, which only a platform administrator may",
} as const;

export const CodeOrder = z.object({
  count: z.int().min(1).max(500),
  points: Points,
  note: Note.describe("Shown in the ledger of those who redeem them"),
  ttl_secs: z
    .int()
    .min(1)
    .max(3 * 365 * DAY_SECONDS)
    .default(365 * DAY_SECONDS),
});

export const createCodes = defineMethod({
  name: "codes.create",
  summary: "Make redemption codes: each gives its points once, to whoever redeems it first",
  ...ISSUING,
  params: CodeOrder,
  result: z.object({
    id: z.uuid().describe("Of the batch"),
    codes: z.array(z.string()).describe("They cannot be shown again"),
    expires_at: Timestamp,
  }),
  handler: ({ params, actor, rooms }) => rooms.groups.codes.create(actor, params),
});

export const CodeBatch = z.object({
  id: z.uuid(),
  points: z.int().describe("Of each code"),
  note: z.string().nullable(),
  codes: z.int(),
  redeemed: z.int(),
  created_by: z.string().describe("Email of who made them"),
  created_at: Timestamp,
  expires_at: Timestamp,
});

export const listCodes = defineMethod({
  name: "codes.list",
  summary: "Batches of redemption codes that have not expired, newest first",
  ...ISSUING,
  result: z.array(CodeBatch),
  handler: ({ rooms }) => rooms.groups.codes.list(),
});

export const revokeCodes = defineMethod({
  name: "codes.revoke",
  summary: "End the codes of a batch that were not redeemed",
  ...ISSUING,
  params: z.object({ id: GivenId }),
  handler: ({ params, rooms }) => rooms.groups.codes.revoke(params.id),
});

export const redeemCode = defineMethod({
  name: "codes.redeem",
  summary: "Redeem a code: its points go to your wallet, or to the pool of one of your groups",
  auth: "jwt",
  params: z.object({ code: z.string().trim().min(1).max(128), group_id: GroupId.optional() }),
  result: z.object({ points: z.int(), balance: z.int().describe("Of the wallet or the pool") }),
  handler: ({ params, actor, caller, rooms }) => rooms.groups.codes.redeem(actor, params, caller),
});
