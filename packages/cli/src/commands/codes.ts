import type { Result } from "@model-gateway/client";
import { act, type Command, needed, text, UsageError } from "../command.ts";
import { findGroup } from "./groups.ts";

type Batch = Result<"codes.list">[number];
const DAY_SECONDS = 86_400;

const whole = (given: string, what: string): number => {
  if (!/^[1-9]\d*$/.test(given)) throw new UsageError(`${what} must be a whole number of 1 or more`);
  return Number(given);
};

export const codes: Command = {
  name: "codes",
  summary: "Redemption codes for points: make them in batches, list, revoke, redeem",
  examples: [
    "model-gateway codes create 10 500 --note 'Workshop' --days 30",
    "model-gateway codes",
    "model-gateway codes revoke 0198b1c2-…",
    "model-gateway codes redeem points-… --group Analysts",
  ],
  actions: ["list", "create", "revoke", "redeem"],
  options: {
    days: { type: "string", help: "with create: how long they are valid; 365 unless given" },
    note: { type: "string", help: "with create: shown in the ledger of those who redeem them" },
    group: { type: "string", help: "with redeem: the points go to this group's pool" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const list = async () =>
      output.table(
        await client.call("codes.list"),
        {
          note: (row: Batch) => row.note ?? "",
          points: (row: Batch) => String(row.points),
          codes: (row: Batch) => String(row.codes),
          redeemed: (row: Batch) => String(row.redeemed),
          expires: (row: Batch) => row.expires_at.slice(0, 10),
          id: (row: Batch) => row.id,
        },
        "No codes; make some: model-gateway codes create 10 500",
      );
    const create = async () => {
      const note = text(options, "note");
      const days = text(options, "days");
      const made = await client.call("codes.create", {
        count: whole(needed(words, 1, "how many codes"), "the number of codes"),
        points: whole(needed(words, 2, "the points of each"), "the points of each"),
        ...(note && { note }),
        ...(days && { ttl_secs: whole(days, "--days") * DAY_SECONDS }),
      });
      output.note(`Each works once, until ${made.expires_at.slice(0, 10)}. They are not shown again:`);
      output.result(made, () => made.codes.join("\n"));
    };
    const revoke = async () => {
      await client.call("codes.revoke", { id: needed(words, 1, "the id of the batch") });
      output.result({ ok: true }, () => "The codes that nobody redeemed no longer work");
    };
    const redeem = async () => {
      const group = text(options, "group");
      const given = await client.call("codes.redeem", {
        code: needed(words, 1, "the code"),
        ...(group && { group_id: (await findGroup(client, group)).id }),
      });
      output.result(given, () => `${given.points} points added: ${given.balance} now`);
    };
    await act(words, { list, create, revoke, redeem }, "list");
  },
};
