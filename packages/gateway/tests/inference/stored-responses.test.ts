import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase, withOwn } from "@model-gateway/testing/databases.ts";
import { Outage } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { type Log, silentLog } from "../../src/kernel/log.ts";
import { nextTurn } from "../../src/kernel/turns.ts";
import { Conversations } from "../../src/rooms/conversations/index.ts";
import { type KeptTurn, type ResponseRow, rowOf, rowsOf } from "../../src/rooms/inference/responses/rows.ts";
import { StoredResponses } from "../../src/rooms/inference/responses/service.ts";
import { ResponseStore } from "../../src/rooms/inference/responses/store.ts";
import { ResponseWriter } from "../../src/rooms/inference/responses/writer.ts";
import type { Database } from "../../src/storage/contract.ts";

const uuid = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const idOf = (n: number) => `resp_${uuid(n).replaceAll("-", "")}`;
const AT = "2026-11-15T12:00:00.000Z";
const TIME_OF_IDS_MS = 0;

const addUser = (db: Database, n: number) =>
  db.run(
    "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
    [uuid(n), `${n}@example.com`, "x", "x", false, AT],
  );

interface TurnOptions {
  user?: number;
  previous?: number | null;
  text?: string;
}

const turnOf = (
  n: number,
  { user = 1, previous = null, text = `${n} \u0000` }: TurnOptions = {},
): KeptTurn => ({
  id: uuid(n),
  userId: uuid(user),
  previousId: previous === null ? null : uuid(previous),
  json: JSON.stringify({
    input: text,
    response: { id: idOf(n), output: [{ type: "message", role: "assistant", content: "ok" }] },
  }),
});

const rowFor = (n: number, options?: TurnOptions): ResponseRow => rowOf([turnOf(n, options)], Date.parse(AT));
const rowsFor = (...turns: KeptTurn[]): ResponseRow[] => rowsOf(turns, Date.parse(AT));
const numbers = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

onEachDatabase("stored responses", (fresh, kind) => {
  test("lead back to their first, for their owner alone; old and excess ones go", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      await addUser(db, 2);
      const store = new ResponseStore(db);
      await store.insert([rowFor(10)]);
      await store.insert([11, 12, 13].map((n) => rowFor(n, { previous: n === 11 ? 10 : 11 })));
      const chain = async (n: number, turnsMax = 100, user = 1) => {
        const row = await store.find(uuid(user), uuid(n));
        return row && (await store.chain(row, { turnsMax, charsMax: 1_000 })).map(({ id }) => id);
      };
      expect(await chain(13)).toEqual([uuid(13), uuid(11), uuid(10)]);
      expect(await chain(12, 2)).toEqual([uuid(12), uuid(11)]);
      expect(await chain(13, 100, 2)).toBeNull();
      expect(await store.removeBelow(uuid(11), 10)).toBe(1);
      expect(await chain(13)).toEqual([uuid(13), uuid(11)]);

      const count = async () =>
        (await db.get<{ turns: number }>("SELECT SUM(turns) AS turns FROM stored_responses"))!.turns;
      for (let n = 100; n < 1_500; n += 7) {
        await store.insert(rowsFor(...numbers(n, 7).map((each) => turnOf(each))));
        expect(Number(await count())).toBeLessThan(1_120);
      }
      expect(await chain(13)).toBeNull();
      expect(await store.find(uuid(1), uuid(501))).toMatchObject({ turns: 7 });
      // Another process of the service knows of no earlier one.
      await new ResponseStore(db).insert([rowFor(2_000)]);
      expect(Number(await count())).toBeLessThan(1_007);
    }));

  test("one of several that are stored together is found, taken out and deleted alone", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      await addUser(db, 2);
      const store = new ResponseStore(db);
      // Answered in another order than they were asked in: the ids of both rows overlap.
      await store.insert(rowsFor(...[1, 5, 3].map((n) => turnOf(n)), turnOf(6, { user: 2 })));
      await store.insert(rowsFor(...[2, 4].map((n) => turnOf(n))));
      const found = async (n: number, user = 1) => {
        const row = await store.find(uuid(user), uuid(n));
        return row && [row.id, row.last_id, row.turns];
      };
      expect(await found(3)).toEqual([uuid(1), uuid(5), 3]);
      expect(await found(4)).toEqual([uuid(2), uuid(4), 2]);
      expect(await found(6)).toBeNull();
      expect(await found(6, 2)).toEqual([uuid(6), uuid(6), 1]);

      const { id } = await new Conversations({ db, clock: new ManualClock(), ids: randomIds }).create(
        uuid(1),
      );
      await store.setConversation(uuid(1), uuid(1), id);
      expect(await store.find(uuid(1), uuid(1))).toMatchObject({ turns: 1, conversation_id: id });
      expect(await found(3)).toEqual([uuid(3), uuid(5), 2]);
      expect(await store.remove(uuid(2), uuid(3))).toBe(false);
      expect(await store.remove(uuid(1), uuid(3))).toBe(true);
      expect(await found(3)).toBeNull();
      expect(await store.remove(uuid(1), uuid(3))).toBe(false);
      expect(await found(5)).toEqual([uuid(5), uuid(5), 1]);
      expect(await store.remove(uuid(1), uuid(5))).toBe(true);
      expect(await found(4)).toEqual([uuid(2), uuid(4), 2]);
      await db.run("DELETE FROM conversations WHERE id = $1", [id]);
      expect(await found(1)).toBeNull();
    }));

  test("one that took long does not take new ones, which it is stored with, for old", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const store = new ResponseStore(db);
      for (let n = 1_000; n < 2_100; n += 50)
        await store.insert(rowsFor(...numbers(n, 50).map((each) => turnOf(each))));
      await new ResponseStore(db).insert(rowsFor(turnOf(1), ...numbers(5_000, 10).map((n) => turnOf(n))));
      expect(await store.find(uuid(1), uuid(5_005))).toMatchObject({ turns: 11 });
      expect(await store.find(uuid(1), uuid(1_149))).not.toBeNull();
      expect(await store.find(uuid(1), uuid(1_050))).toBeNull();
    }));

  test("what a client sends is not taken for a response", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const store = new ResponseStore(db);
      const sent = (n: number, named: number): KeptTurn => ({
        ...turnOf(n),
        json: JSON.stringify({
          input: [{ role: "user", content: "x", response: { id: idOf(named) } }],
          response: { id: idOf(n), output: [] },
        }),
      });
      await store.insert(rowsFor(sent(1, 3), turnOf(5)));
      await store.insert(rowsFor(turnOf(2), turnOf(3), turnOf(6)));
      expect(await store.find(uuid(1), uuid(3))).toMatchObject({ id: uuid(2), turns: 3 });
      expect(await store.remove(uuid(1), uuid(3))).toBe(true);
      expect(await store.find(uuid(1), uuid(3))).toBeNull();
      expect(await store.remove(uuid(1), uuid(3))).toBe(false);
      expect(await store.find(uuid(1), uuid(5))).toMatchObject({ id: uuid(1), turns: 2 });
    }));

  test("turns that are answered together are stored together, and each is there for whoever asks", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      await addUser(db, 2);
      const store = new ResponseStore(db);
      let transactions = 0;
      const counted = withOwn(db, "transaction", (work, options) => {
        transactions++;
        return db.transaction(work, options);
      });
      const writer = writerOn(new ResponseStore(counted));
      const turns = numbers(1, 100).map((n) => turnOf(n, { user: 1 + (n % 2) }));
      for (const turn of turns) expect(writer.keep(turn)).toBe(true);
      const rows = await Promise.all(
        turns.map(async ({ id, userId }) => {
          await writer.written(userId, id);
          return (await store.find(userId, id))?.turns;
        }),
      );
      expect(rows).toEqual(rows.map(() => 50));
      expect(transactions).toBe(1);
    }));

  test("what leads to a response is read up to a limit, and a longer conversation is refused", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const clock = new ManualClock();
      const conversations = new Conversations({ db, clock, ids: randomIds });
      const responses = new StoredResponses({ db, clock, log: silentLog, conversations, isShared: false });
      const store = new ResponseStore(db);
      // 34 turns of 250,000 characters are more than 8 MiB.
      for (let n = 1; n <= 34; n++) {
        const text = "x".repeat(250_000);
        await store.insert([rowFor(n, { previous: n === 1 ? null : n - 1, text })]);
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
      const responses = new StoredResponses({ db, clock, log: silentLog, conversations, isShared: false });
      const input = `\u0000${"x".repeat(58)}😀 and more`;
      const keep = (n: number, previousResponseId: string | null) =>
        responses.of(uuid(1), uuid(n)).turn({ previousResponseId, input })!(
          JSON.stringify({ id: idOf(n), output: [] }),
        );
      expect(keep(1, null)).toBe(true);
      await responses.close();
      expect(keep(2, idOf(1))).toBe(true);
      await responses.close();
      expect(await conversations.list(uuid(1))).toMatchObject([{ title: `${"x".repeat(58)}\ufffd` }]);
    }));

  test("what another process has yet to write is waited for", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const clock = new ManualClock(TIME_OF_IDS_MS);
      const conversations = new Conversations({ db, clock, ids: randomIds });
      const options = { db, clock, log: silentLog, conversations, isShared: true };
      const [here, there] = [new StoredResponses(options), new StoredResponses(options)];
      const keep = there.of(uuid(1), uuid(1)).turn({ previousResponseId: null, input: "hi" });
      expect(keep!(JSON.stringify({ id: idOf(1), object: "response", output: [] }))).toBe(true);
      const asking = here.get(uuid(1), idOf(1));
      clock.advance(100);
      expect(await asking).toMatchObject({ input: "hi", response: { id: idOf(1) } });
    }));

  test("an id that no process can be about to write is looked for once", () =>
    withDatabase(fresh, async (db) => {
      let looks = 0;
      const all: Database["all"] = (...query) => {
        looks++;
        return db.all(...query);
      };
      const HOUR_MS = 3_600_000;
      for (const [nowMs, expected] of [
        [TIME_OF_IDS_MS + HOUR_MS, 2],
        [TIME_OF_IDS_MS + 3 * HOUR_MS, 1],
      ] as const) {
        const clock = new ManualClock(nowMs);
        const conversations = new Conversations({ db, clock, ids: randomIds });
        const options = { clock, log: silentLog, conversations, isShared: true };
        const responses = new StoredResponses({ ...options, db: withOwn(db, "all", all) });
        looks = 0;
        expect(await responses.get(uuid(1), idOf(1)).catch(({ kind }) => kind)).toBe("not_found");
        expect(looks).toBe(expected);
        looks = 0;
        const ahead = `resp_${"f".repeat(32)}`;
        expect(await responses.get(uuid(1), ahead).catch(({ kind }) => kind)).toBe("not_found");
        expect(looks).toBe(1);
      }
    }));

  // With SQLite an error says that nothing was stored.
  test.if(kind === "postgres")("one that was deleted stays so when its commit was taken for an outage", () =>
    withDatabase(fresh, async (db) => {
      for (const user of [1, 2]) await addUser(db, user);
      let isBroken = true;
      const broken = withOwn(db, "transaction", async (work, options) => {
        const result = await db.transaction(work, options);
        if (isBroken) throw new Outage("the connection broke");
        return result;
      });
      const writer = writerOn(new ResponseStore(broken));
      const store = new ResponseStore(db);
      const has = async (n: number, user = 1) => (await store.find(uuid(user), uuid(n))) !== null;
      for (const turn of [turnOf(1), turnOf(2), turnOf(3, { user: 2 })]) writer.keep(turn);
      expect(await writer.flush()).toBe(false);
      expect(await store.remove(uuid(1), uuid(1))).toBe(true);
      expect(await store.remove(uuid(2), uuid(3))).toBe(true);
      isBroken = false;
      writer.keep(turnOf(4));
      expect(await writer.flush()).toBe(true);
      expect([await has(1), await has(2), await has(3, 2), await has(4)]).toEqual([false, true, false, true]);

      // What was not stored is, on the next attempt.
      const undone = withOwn(db, "transaction", (work, options) =>
        db.transaction(async (tx) => {
          await work(tx);
          throw new Outage("the connection broke");
        }, options),
      );
      isBroken = true;
      const late = new ResponseStore(
        withOwn(db, "transaction", (work, options) => (isBroken ? undone : db).transaction(work, options)),
      );
      const row = rowFor(5);
      expect(await late.insert([row]).catch((error) => error)).toBeInstanceOf(Outage);
      isBroken = false;
      await late.insert([row]);
      expect(await has(5)).toBe(true);
    }),
  );

  test("users at their cap are counted one after the other, between which others have their turn", () =>
    withDatabase(fresh, async (db) => {
      const users = [1, 2, 3, 4];
      const store = new ResponseStore(db);
      for (const user of users) {
        await addUser(db, user);
        for (const n of numbers(0, 22))
          await store.insert(
            rowsFor(...numbers(user * 10_000 + n * 50, 50).map((id) => turnOf(id, { user }))),
          );
      }
      let [turn, isDone] = [0, false];
      const count = () => {
        turn++;
        if (!isDone) setImmediate(count);
      };
      const steps: number[] = [];
      const counted = withOwn(db, "transaction", (work, options) => {
        steps.push(turn);
        return db.transaction(work, options);
      });
      count();
      await new ResponseStore(counted).insert(users.map((user) => rowFor(user * 10_000 + 5_000, { user })));
      isDone = true;
      expect(steps).toHaveLength(users.length + 1);
      expect(new Set(steps.slice(0, users.length)).size).toBe(users.length);
      const turns = await db.all("SELECT SUM(turns) AS turns FROM stored_responses GROUP BY user_id");
      expect(turns.map((row) => Number(row.turns))).toEqual(users.map(() => 1_001));
    }));

  test("one that cannot be written now is not told to be missing, and cannot be deleted", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const clock = new ManualClock();
      const conversations = new Conversations({ db, clock, ids: randomIds });
      let isFull = true;
      const full = withOwn(db, "transaction", (work, options) =>
        isFull ? Promise.reject(new Outage("full")) : db.transaction(work, options),
      );
      const options = { db: full, clock, log: silentLog, conversations, isShared: false };
      const responses = new StoredResponses(options);
      const keep = responses.of(uuid(1), uuid(1)).turn({ previousResponseId: null, input: "hi" })!;
      keep(JSON.stringify({ id: idOf(1), object: "response", output: [] }));
      const { history } = responses.of(uuid(1), uuid(2));
      for (const asking of [
        responses.get(uuid(1), idOf(1)),
        history(idOf(1)),
        responses.remove(uuid(1), idOf(1)),
      ])
        expect(await asking.catch((error) => error)).toBeInstanceOf(Outage);
      expect(await responses.get(uuid(2), idOf(1)).catch(({ kind }) => kind)).toBe("not_found");
      isFull = false;
      expect(await history(idOf(1))).toHaveLength(1);
    }));

  test("a turn whose user is gone does not keep others from being stored", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const failures: string[] = [];
      const store = new ResponseStore(db);
      const writer = writerOn(store, { failures });
      for (const turn of [turnOf(1), turnOf(2, { user: 9 }), turnOf(3)]) writer.keep(turn);
      expect(await writer.flush()).toBe(true);
      expect(await store.find(uuid(1), uuid(3))).toMatchObject({ turns: 2 });
      expect(failures).toEqual([uuid(2)]);
    }));
});

test("a database that is away holds nobody up; what waits is written when it is back", async () => {
  const clock = new ManualClock();
  const inserted: string[] = [];
  let isAway = true;
  const insert = async (rows: readonly ResponseRow[]) => {
    if (isAway) throw new Outage("away");
    inserted.push(...rows.map(({ id }) => id));
  };
  const writer = writerOn({ insert }, { clock });
  expect(writer.keep(turnOf(1))).toBe(true);
  clock.advance(100);
  await nextTurn();
  expect(writer.keep(turnOf(2))).toBe(true);
  expect(await writer.written(uuid(1), uuid(2))).toBe(false);
  isAway = false;
  clock.advance(2_000);
  await writer.flush();
  expect(inserted).toEqual([uuid(1), uuid(2)]);
});

test("what is answered during a write is written before a stop", async () => {
  const inserted: string[] = [];
  const insert = async (rows: readonly ResponseRow[]) => {
    await nextTurn();
    inserted.push(...rows.map(({ id }) => id));
  };
  const writer = writerOn({ insert });
  writer.keep(turnOf(1));
  void writer.flush();
  writer.keep(turnOf(2));
  await writer.close(1_000);
  expect(inserted).toEqual([uuid(1), uuid(2)]);
});

test("a thousand users' turns are written in steps, between which others have their turn", async () => {
  const steps: { rows: number; turn: number }[] = [];
  let [turn, isDone] = [0, false];
  const count = () => {
    turn++;
    if (!isDone) setImmediate(count);
  };
  const insert = async (rows: readonly ResponseRow[]) => {
    steps.push({ rows: rows.length, turn });
  };
  const writer = writerOn({ insert });
  for (const n of numbers(1, 1_000)) writer.keep(turnOf(n, { user: n }));
  count();
  await writer.flush();
  isDone = true;
  expect(Math.max(...steps.map(({ rows }) => rows))).toBe(64);
  expect(steps.reduce((sum, { rows }) => sum + rows, 0)).toBe(1_000);
  expect(new Set(steps.map((step) => step.turn)).size).toBe(steps.length);
});

test("who asks for another user's response waits for no write", async () => {
  const { promise: never } = Promise.withResolvers<void>();
  const writer = writerOn({ insert: () => never });
  writer.keep(turnOf(1));
  expect(await writer.written(uuid(2), uuid(1))).toBe(true);
});

test("what waits to be stored is bounded", async () => {
  const { promise: never } = Promise.withResolvers<void>();
  const writer = writerOn({ insert: () => never });
  const large = { ...turnOf(1), json: "x".repeat(256 * 1024) };
  const kept = Array.from({ length: 100 }, () => writer.keep(large));
  expect(kept.filter(Boolean)).toHaveLength(64);
});

function writerOn(
  store: Pick<ResponseStore, "insert">,
  { clock = new ManualClock(), failures = [] as string[] } = {},
): ResponseWriter {
  const error = (_: string, { request_id }: { request_id: string }) => failures.push(request_id);
  const log = { error, warn: () => {} } as unknown as Log;
  return new ResponseWriter({ store, clock, log, joined: async () => {} });
}
