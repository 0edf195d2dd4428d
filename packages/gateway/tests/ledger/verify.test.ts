import { expect, test } from "bun:test";
import { join } from "node:path";
import {
  onEachDatabase,
  openStorage,
  type TestDatabase,
  withDatabase,
} from "@model-gateway/testing/databases.ts";
import { type AccountRef, verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { NANO_PER_POINT, onLedger } from "./support.ts";

const account: AccountRef = { type: "group", id: "6f1c2a34-5b6d-4e7f-8a9b-0c1d2e3f4a5b" };
const person: AccountRef = { type: "user", id: "0e9d8c7b-6a5f-4e3d-9c2b-1a0f9e8d7c6b" };
const id = `'group:${account.id}'`;

/** A small ledger with one of everything. */
async function fill(db: Database): Promise<void> {
  const { topup, settle, ledger } = onLedger(db);
  await topup(account, 100);
  await settle(
    { account, requestId: "first", costNanoUsd: 3n * NANO_PER_POINT },
    { account, requestId: "second", costNanoUsd: NANO_PER_POINT / 3n },
  );
  const order = { points: 10, note: null, actor: "test" };
  await ledger.transaction((tx) => ledger.allocate(tx, { from: account, to: person, order }));
}

/** Ways to falsify the books that the database itself does not refuse, and who notices. */
const forgeries: [what: string, sql: string[], check: string][] = [
  ["a balance", [`UPDATE ledger_accounts SET balance = balance + 1 WHERE id = ${id}`], "balance"],
  [
    "both balances",
    [
      `UPDATE ledger_accounts SET balance = balance + 5 WHERE id = ${id}`,
      "UPDATE ledger_accounts SET balance = balance - 5 WHERE id = 'system:issued'",
    ],
    "balance",
  ],
  [
    "one balance, so that the sum is off",
    [`UPDATE ledger_accounts SET balance = 1 WHERE id = ${id}`],
    "sum of balances",
  ],
  [
    "an entry's amount",
    [`UPDATE ledger_entries SET points = -1 WHERE account_id = ${id} AND seq = 2`],
    "entry pairs",
  ],
  [
    "an entry's running balance",
    [`UPDATE ledger_entries SET balance_after = 1 WHERE account_id = ${id} AND seq = 2`],
    "running balance",
  ],
  [
    "an entry that is gone",
    [`DELETE FROM ledger_entries WHERE account_id = ${id} AND seq = 3`],
    "entry numbers",
  ],
  [
    "an entry that moved to another account",
    [
      `UPDATE ledger_entries SET account_id = 'user:${person.id}', seq = 9 WHERE account_id = ${id} AND seq = 2`,
    ],
    "entry pairs",
  ],
  ["a remainder", [`UPDATE ledger_accounts SET remainder = 7 WHERE id = ${id}`], "remainder"],
  [
    "a settlement's exact amount",
    ["UPDATE ledger_movements SET exact_points = 50000 WHERE id = 'request:first'"],
    "remainder",
  ],
  [
    "a settlement without its amount",
    ["UPDATE ledger_movements SET exact_femto = NULL WHERE id = 'request:first'"],
    "settlements",
  ],
  [
    "a zero settlement with points",
    ["UPDATE ledger_movements SET points = 1 WHERE id = 'request:second'"],
    "entry pairs",
  ],
];

onEachDatabase("ledger verify", (fresh) => {
  test("finds a ledger in order, and each way of falsifying it", () =>
    withDatabase(fresh, async (db) => {
      await fill(db);
      expect(await verifyLedger(db)).toEqual({
        ok: true,
        accounts: 4,
        movements: 4,
        entries: 6,
        problems: [],
      });
      for (const [what, statements, check] of forgeries) {
        const undo = new Error("undo");
        await db
          .transaction(async (tx) => {
            for (const sql of statements) expect(await tx.run(sql)).toBeGreaterThan(0);
            const { ok, problems } = await verifyLedger(tx);
            expect({ what, ok, noticed: problems.map((problem) => problem.check) }).toEqual({
              what,
              ok: false,
              noticed: expect.arrayContaining([check]),
            });
            throw undo;
          })
          .catch((error) => expect(error).toBe(undo));
      }
      expect((await verifyLedger(db)).ok).toBe(true);
    }));

  test("lists a bounded number of problems", () =>
    withDatabase(fresh, async (db) => {
      const { topup } = onLedger(db);
      for (let n = 0; n < 102; n++) await topup({ type: "user", id: `person-${n}` }, 1);
      await db.run("UPDATE ledger_accounts SET balance = 2 WHERE type = 'user'");
      const { problems } = await verifyLedger(db);
      expect(problems.filter(({ check }) => check === "balance")).toHaveLength(101);
    }));

  test("the database itself refuses an overdraft, a second settlement and a movement of nothing", () =>
    withDatabase(fresh, async (db) => {
      await fill(db);
      for (const sql of [
        `UPDATE ledger_accounts SET balance = -1 WHERE id = ${id}`,
        `UPDATE ledger_accounts SET remainder = 500000000000000 WHERE id = ${id}`,
        "UPDATE ledger_movements SET id = 'request:first' WHERE id = 'request:second'",
        "UPDATE ledger_movements SET points = 0 WHERE kind = 'topup'",
        "DELETE FROM ledger_movements",
        "DELETE FROM ledger_accounts",
      ])
        await expect(db.run(sql)).rejects.toThrow();
    }));

  test("as a command: report, --json and exit status", async () => {
    const { options, drop } = await fresh();
    try {
      const missing = await runCommand({
        ...options,
        databaseUrl: options.databaseUrl && "postgres://127.0.0.1:1/none",
      });
      expect(missing.code).toBe(2);
      expect(missing.stderr).toContain("could not be checked");
      const db = await openStorage(options);
      await fill(db);
      const clean = await runCommand(options);
      expect(clean).toMatchObject({ code: 0, stdout: "4 accounts, 4 movements, 6 entries: all in order\n" });
      await db.run(`UPDATE ledger_accounts SET balance = balance + 1 WHERE id = ${id}`);
      await db.close();
      const broken = await runCommand(options);
      expect(broken.code).toBe(1);
      expect(broken.stdout).toContain(`group:${account.id}: the balance is 88, its entries sum to 87`);
      expect(broken.stdout).toContain("NOT in order");
      const json = await runCommand(options, "--json");
      expect(json.code).toBe(1);
      expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, accounts: 4, entries: 6 });
    } finally {
      await drop();
    }
  });
});

async function runCommand({ dataDir, databaseUrl }: TestDatabase["options"], ...args: string[]) {
  const child = Bun.spawn(
    [process.execPath, join(import.meta.dir, "../../../../scripts/ledger-verify.ts"), ...args],
    {
      env: {
        PATH: process.env.PATH,
        SERVICE_DATA_DIR: dataDir,
        ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
      },
      stdout: "pipe",
      stderr: "pipe",
    },
  );
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { stdout, stderr, code };
}
