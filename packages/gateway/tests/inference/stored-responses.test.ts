import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { type Log, silentLog } from "../../src/kernel/log.ts";
import { nextTurn } from "../../src/kernel/turns.ts";
import { Conversations } from "../../src/rooms/conversations/index.ts";
import { StoredResponses } from "../../src/rooms/inference/responses/service.ts";
import { type ResponseRow, ResponseStore } from "../../src/rooms/inference/responses/store.ts";
import { ResponseWriter } from "../../src/rooms/inference/responses/writer.ts";
import type { Database } from "../../src/storage/contract.ts";

const uuid = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const idOf = (n: number) => `resp_${uuid(n).replaceAll("-", "")}`;
const AT = "2026-11-15T12:00:00.000Z";

const addUser = (db: Database, n: number) =>
  db.run(
    "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
    [uuid(n), `${n}@example.com`, "x", "x", false, AT],
  );

interface RowOptions {
  user?: number;
  previous?: number | null;
  created_at?: string;
}

const rowOf = (n: number, { user = 1, previous = null, created_at = AT }: RowOptions = {}): ResponseRow => ({
  id: uuid(n),
  user_id: uuid(user),
  previous_id: previous === null ? null : uuid(previous),
  conversation_id: null,
  messages: JSON.stringify([{ role: "user", content: `${n} \u0000` }]),
  created_at,
});

/** The numbers of the rows from `first` on. */
const rowsFrom = (first: number, count: number) => Array.from({ length: count }, (_, i) => rowOf(first + i));

onEachDatabase("stored responses", (fresh) => {
  test("lead back to their first, for their owner alone; old and excess ones go", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      await addUser(db, 2);
      const store = new ResponseStore(db);
      await store.insert([rowOf(10, { created_at: "2026-01-01T00:00:00.000Z" })]);
      await store.insert([11, 12, 13].map((n) => rowOf(n, { previous: n === 11 ? 10 : 11 })));
      const chain = async (n: number, turnsMax = 100, user = 1) =>
        (await store.chain(uuid(user), uuid(n), { turnsMax, charsMax: 1_000 })).map(({ id }) => id);
      expect(await chain(13)).toEqual([uuid(13), uuid(11), uuid(10)]);
      expect(await chain(12, 2)).toEqual([uuid(12), uuid(11)]);
      expect(await chain(13, 100, 2)).toEqual([]);
      expect(await store.removeOlderThan("2026-06-01T00:00:00.000Z", 10)).toBe(1);
      expect(await chain(13)).toEqual([uuid(13), uuid(11)]);

      const count = async () =>
        (await db.get<{ rows: number }>("SELECT COUNT(*) AS rows FROM stored_responses"))!.rows;
      for (let n = 100; n < 1_500; n += 7) {
        await store.insert(rowsFrom(n, 7));
        expect(await count()).toBeLessThan(1_110);
      }
      expect(await chain(13)).toEqual([]);
      expect(await chain(500)).toEqual([uuid(500)]);
      // Another process of the service knows of no earlier one.
      await new ResponseStore(db).insert([rowOf(2_000)]);
      expect(await count()).toBe(1_000);
    }));

  test("turns that are answered together are stored together, and each is there once it is said to be", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const store = new ResponseStore(db);
      let transactions = 0;
      const counted = {
        transaction: (work: Parameters<Database["transaction"]>[0]) => {
          transactions++;
          return db.transaction(work);
        },
      } as unknown as Database;
      const writer = writerOn(new ResponseStore(counted));
      const kept = await Promise.all(
        rowsFrom(1, 100).map(async (row) => {
          expect(await writer.write(row)).toBe(true);
          return (await store.chain(uuid(1), row.id, { turnsMax: 1, charsMax: 0 })).length;
        }),
      );
      expect(kept).toEqual(kept.map(() => 1));
      expect(transactions).toBeLessThanOrEqual(3);
    }));

  test("what leads to a response is read up to a limit, and a longer conversation is refused", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const clock = new ManualClock();
      const conversations = new Conversations({ db, clock, ids: randomIds });
      const responses = new StoredResponses({ db, clock, log: silentLog, conversations });
      const store = new ResponseStore(db);
      // 34 turns of 250,000 characters are more than 8 MiB.
      for (let n = 1; n <= 34; n++) {
        const messages = JSON.stringify([{ role: "user", content: "x".repeat(250_000) }]);
        await store.insert([{ ...rowOf(n, { previous: n === 1 ? null : n - 1 }), messages }]);
      }
      const { history } = responses.of(uuid(1), uuid(99));
      expect(await history(idOf(33))).toHaveLength(33);
      expect(await history(idOf(34)).catch(({ message }) => message)).toContain("`previous_response_id`");
    }));

  test("a conversation is named after its first words, whatever is in them", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const clock = new ManualClock();
      const conversations = new Conversations({ db, clock, ids: randomIds });
      const responses = new StoredResponses({ db, clock, log: silentLog, conversations });
      const asked = [{ role: "user", content: `\u0000${"x".repeat(58)}😀 and more` }];
      const keep = (n: number, previousResponseId: string | null) =>
        responses.of(uuid(1), uuid(n)).turn({ previousResponseId, asked })!({
          role: "assistant",
          content: "ok",
        });
      expect(await keep(1, null)).toBe(true);
      expect(await keep(2, idOf(1))).toBe(true);
      expect(await conversations.list(uuid(1))).toMatchObject([{ title: `${"x".repeat(58)}\ufffd` }]);
    }));

  test("a turn whose user is gone does not keep others from being stored", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const failures: string[] = [];
      const writer = writerOn(new ResponseStore(db), { failures });
      const written = [rowOf(1), rowOf(2, { user: 9 }), rowOf(3)].map((row) => writer.write(row));
      expect(await Promise.all(written)).toEqual([true, false, true]);
      expect(failures).toEqual([uuid(2)]);
    }));
});

test("a database that does not answer holds an answer up for a moment, and later ones not at all", async () => {
  const clock = new ManualClock();
  const { promise: stored, resolve: finish } = Promise.withResolvers<void>();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const inserted: string[] = [];
  const store = {
    insert: (rows: readonly ResponseRow[]) => {
      inserted.push(...rows.map(({ id }) => id));
      begin();
      return stored;
    },
  } as unknown as ResponseStore;
  const writer = writerOn(store, { clock });
  const first = writer.write(rowOf(1));
  await begun;
  const second = writer.write(rowOf(2));
  clock.advance(2_000);
  expect(await Promise.all([first, second, writer.write(rowOf(3))])).toEqual([false, false, false]);
  finish();
  await nextTurn();
  expect(await writer.write(rowOf(4))).toBe(true);
  expect(inserted).toEqual([uuid(1), uuid(4)]);
});

test("what waits to be stored is bounded", async () => {
  const store = { insert: () => Promise.resolve() } as unknown as ResponseStore;
  const writer = writerOn(store);
  const large = { ...rowOf(1), messages: "x".repeat(256 * 1024) };
  const written = await Promise.all(Array.from({ length: 100 }, () => writer.write(large)));
  expect(written.filter(Boolean)).toHaveLength(64);
});

function writerOn(
  store: ResponseStore,
  { clock = new ManualClock(), failures = [] as string[] } = {},
): ResponseWriter {
  const error = (_: string, { request_id }: { request_id: string }) => failures.push(request_id);
  return new ResponseWriter({ store, clock, log: { error } as unknown as Log });
}
