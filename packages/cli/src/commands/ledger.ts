import { act, type Command } from "../command.ts";

interface Entry {
  seq: number;
  kind: string;
  points: number;
  balance_after: number;
  note: string | null;
  created_at: string;
}

export const ledger: Command = {
  name: "ledger",
  summary: "Your wallet; on the service's machine: recompute every balance",
  examples: [
    "model-gateway ledger",
    "model-gateway ledger verify",
    "SERVICE_DATABASE_URL=postgres://… model-gateway ledger verify --json",
  ],
  actions: ["show", "verify"],
  async run({ words, output, connection }) {
    const show = async () => {
      const statement = await (await connection.signedIn()).call("ledger.self");
      if (output.json) return output.result(statement, () => "");
      output.write(`Balance: ${statement.balance} points\n`);
      if (statement.debt > 0) {
        output.write(`Owed: ${statement.debt} points; a top-up or the next month's quota pays this first\n`);
      }
      output.table(
        statement.entries,
        {
          no: (row: Entry) => String(row.seq),
          when: (row: Entry) => row.created_at.slice(0, 19).replace("T", " "),
          what: (row: Entry) => row.kind,
          points: (row: Entry) => String(row.points),
          balance: (row: Entry) => String(row.balance_after),
          note: (row: Entry) => row.note ?? "",
        },
        "No entries yet",
      );
    };
    const verify = async () => (await import("../service/verify-books.ts")).verifyBooks(output);
    await act(words, { show, verify }, "show");
  },
};
