import { z } from "zod";
import { defineMethod, NoParams, Timestamp } from "../../kernel/method.ts";

export const StatementResult = z.object({
  balance: z.int().describe("Points"),
  entries: z
    .array(
      z.object({
        seq: z.int().describe("Counts the account's entries from 1, without gaps"),
        kind: z.enum(["topup", "allocation", "settlement", "return"]),
        points: z.int().describe("What the entry added, or took when negative"),
        balance_after: z.int(),
        counterparty: z
          .object({ type: z.enum(["user", "group", "system"]), id: z.string() })
          .describe("The account on the other side of the movement"),
        request_id: z.string().nullable().describe("Of a settlement: the request that was paid"),
        note: z.string().nullable(),
        created_at: Timestamp,
      }),
    )
    .describe("The newest 50, newest first"),
});

export const self = defineMethod({
  name: "ledger.self",
  summary: "Your wallet: balance and recent entries. With the admin token: the account that issues points",
  auth: "jwt_or_admin_token",
  params: NoParams,
  result: StatementResult.extend({
    account: z.object({ type: z.enum(["user", "system"]), id: z.string() }),
  }),
  handler: async ({ actor, rooms }) => {
    const account = actor
      ? ({ type: "user", id: actor.userId } as const)
      : ({ type: "system", id: "issued" } as const);
    const statement = actor
      ? await rooms.ledger.statement({ type: "user", id: actor.userId })
      : await rooms.ledger.issuedStatement();
    return { account, ...statement };
  },
});
