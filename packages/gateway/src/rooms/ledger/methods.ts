import { z } from "zod";
import { defineMethod, Timestamp } from "../../kernel/method.ts";
import { MOVEMENT_KINDS } from "./store.ts";

const Entry = z.object({
  seq: z.int().describe("Counts the account's entries from 1, without gaps"),
  kind: z.enum(MOVEMENT_KINDS),
  points: z.int().describe("What the entry added, or took when negative"),
  balance_after: z.int(),
  counterparty: z
    .object({ type: z.enum(["user", "group", "debt", "system"]), id: z.string() })
    .describe("The account on the other side of the movement"),
  request_id: z.string().nullable().describe("Of a settlement or a debt: the request"),
  note: z.string().nullable(),
  created_at: Timestamp,
});

export const StatementResult = z.object({
  balance: z.int().describe("Points"),
  entries: z.array(Entry).describe("The newest 50, newest first"),
  debt: z.int().describe("Points owed on this account: served, and covered neither by points nor by a quota"),
  debts: z
    .array(z.object({ user_id: z.string(), points: z.int() }))
    .describe("Who owes them; nothing is admitted for these people on this account until it is paid"),
  debt_entries: z
    .array(Entry.extend({ user_id: z.string() }))
    .describe("The newest 50 entries of the debts, newest first; their balance is minus what is owed"),
});

export const self = defineMethod({
  name: "ledger.self",
  summary: "Your wallet: balance and recent entries. With the admin token: the account that issues points",
  auth: "jwt_or_admin_token",
  result: StatementResult.extend({
    account: z.object({ type: z.enum(["user", "system"]), id: z.string() }),
    group_debts: z
      .array(z.object({ group_id: z.string(), points: z.int() }))
      .describe("What you owe on the pools of groups"),
  }),
  handler: async ({ actor, rooms }) => {
    const wallet = actor && ({ type: "user", id: actor.userId } as const);
    const account = wallet ?? ({ type: "system", id: "issued" } as const);
    await rooms.usage.settled();
    const debts = actor ? await rooms.ledger.debtsOf(actor.userId) : [];
    const group_debts = debts
      .filter((debt) => debt.account.type === "group")
      .map((debt) => ({ group_id: debt.account.id, points: debt.points }));
    return { account, ...(await rooms.ledger.statement(wallet)), group_debts };
  },
});
