import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase, withOwn } from "@model-gateway/testing/databases.ts";
import { Outage } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { type Log, silentLog } from "../../src/kernel/log.ts";
import { nextTurn } from "../../src/kernel/turns.ts";
import { Conversations } from "../../src/rooms/conversations/index.ts";
import { StoredResponses } from "../../src/rooms/inference/responses/service.ts";
import {
  type ResponseRow,
  ResponseStore,
  ResponseWriter,
} from "../../src/rooms/inference/responses/store.ts";
import type { Database } from "../../src/storage/contract.ts";

const uuid = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const idOf = (n: number) => `resp_${uuid(n).replaceAll("-", "")}`;
const holder = (n: number) => ({ userId: uuid(n), keyId: uuid(n), limits: null, models: null });
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

const rowFor = (
  n: number,
  { user = 1, previous = null, text = `${n} \u0000` }: TurnOptions = {},
): ResponseRow => ({
  id: uuid(n),
  user_id: uuid(user),
  key_id: uuid(user),
  previous_id: previous === null ? null : uuid(previous),
  conversation_id: null,
  input: JSON.stringify(text),
  output: JSON.stringify([{ type: "message", role: "assistant", content: "ok" }]),
  response: JSON.stringify({ id: idOf(n), object: "response" }),
  created_at: AT,
});

const numbers = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

onEachDatabase("stored responses", (fresh) => {
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
        Number((await db.get<{ rows: number }>("SELECT COUNT(*) AS rows FROM stored_responses"))!.rows);
      for (let n = 100; n < 1_500; n += 7) {
        await store.insert(numbers(n, 7).map((each) => rowFor(each)));
        expect(await count()).toBeLessThan(1_120);
      }
      expect(await chain(13)).toBeNull();
      expect(await store.find(uuid(1), uuid(501))).not.toBeNull();
      // Another process of the service knows of no earlier one.
      await new ResponseStore(db).insert([rowFor(2_000)]);
      expect(await count()).toBe(1_000);
    }));

  test("one is deleted by its owner alone, and with its conversation", () =>
    withDatabase(fresh, async (db) => {
      for (const user of [1, 2]) await addUser(db, user);
      const store = new ResponseStore(db);
      await store.insert([1, 2].map((n) => rowFor(n)));
      expect(await store.remove(uuid(2), uuid(1))).toBe(false);
      expect(await store.remove(uuid(1), uuid(1))).toBe(true);
      expect(await store.remove(uuid(1), uuid(1))).toBe(false);
      const conversations = new Conversations({ db, clock: new ManualClock(), ids: randomIds });
      const { id } = await conversations.create(uuid(1));
      await store.setConversation(uuid(2), id);
      expect(await store.find(uuid(1), uuid(2))).toEqual({ ...rowFor(2), conversation_id: id });
      await db.run("DELETE FROM conversations WHERE id = $1", [id]);
      expect(await store.find(uuid(1), uuid(2))).toBeNull();
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
      const rows = numbers(1, 60).map((n) => rowFor(n, { user: 1 + (n % 2) }));
      for (const row of rows) expect(writer.keep(row)).toBe(true);
      const found = rows.map(async ({ id, user_id }) => {
        await writer.written(user_id, id);
        return store.find(user_id, id);
      });
      expect(await Promise.all(found)).toEqual(rows);
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
      const { history } = responses.of(holder(1), uuid(99));
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
        responses.of(holder(1), uuid(n)).turn({ previousResponseId, input })!(
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
      const keep = there.of(holder(1), uuid(1)).turn({ previousResponseId: null, input: "hi" });
      expect(keep!(JSON.stringify({ id: idOf(1), object: "response", output: [] }))).toBe(true);
      const asking = here.get(holder(1), idOf(1));
      clock.advance(100);
      expect(await asking).toMatchObject({ input: "hi", response: { id: idOf(1) } });
    }));

  test("an id that no process can be about to write is looked for once", () =>
    withDatabase(fresh, async (db) => {
      let looks = 0;
      const get: Database["get"] = (...query) => {
        looks++;
        return db.get(...query);
      };
      const HOUR_MS = 3_600_000;
      for (const [nowMs, expected] of [
        [TIME_OF_IDS_MS + HOUR_MS, 2],
        [TIME_OF_IDS_MS + 3 * HOUR_MS, 1],
      ] as const) {
        const clock = new ManualClock(nowMs);
        const conversations = new Conversations({ db, clock, ids: randomIds });
        const options = { clock, log: silentLog, conversations, isShared: true };
        const responses = new StoredResponses({ ...options, db: withOwn(db, "get", get) });
        looks = 0;
        expect(await responses.get(holder(1), idOf(1)).catch(({ kind }) => kind)).toBe("not_found");
        expect(looks).toBe(expected);
        looks = 0;
        const ahead = `resp_${"f".repeat(32)}`;
        expect(await responses.get(holder(1), ahead).catch(({ kind }) => kind)).toBe("not_found");
        expect(looks).toBe(1);
      }
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
      const keep = responses.of(holder(1), uuid(1)).turn({ previousResponseId: null, input: "hi" })!;
      keep(JSON.stringify({ id: idOf(1), object: "response", output: [] }));
      const { history } = responses.of(holder(1), uuid(2));
      for (const asking of [
        responses.get(holder(1), idOf(1)),
        history(idOf(1)),
        responses.remove(holder(1), idOf(1)),
      ])
        expect(await asking.catch((error) => error)).toBeInstanceOf(Outage);
      expect(await responses.get(holder(2), idOf(1)).catch(({ kind }) => kind)).toBe("not_found");
      isFull = false;
      expect(await history(idOf(1))).toHaveLength(1);
    }));

  test("a turn whose user is gone does not keep others from being stored", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      const failures: string[] = [];
      const store = new ResponseStore(db);
      const writer = writerOn(store, { failures });
      for (const row of [rowFor(1), rowFor(2, { user: 9 }), rowFor(3)]) writer.keep(row);
      expect(await writer.flush()).toBe(true);
      for (const n of [1, 3]) expect(await store.find(uuid(1), uuid(n))).not.toBeNull();
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
  expect(writer.keep(rowFor(1))).toBe(true);
  clock.advance(100);
  await nextTurn();
  expect(writer.keep(rowFor(2))).toBe(true);
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
  writer.keep(rowFor(1));
  void writer.flush();
  writer.keep(rowFor(2));
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
  for (const n of numbers(1, 1_000)) writer.keep(rowFor(n, { user: n }));
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
  writer.keep(rowFor(1));
  expect(await writer.written(uuid(2), uuid(1))).toBe(true);
});

test("what waits to be stored is bounded", async () => {
  const { promise: never } = Promise.withResolvers<void>();
  const writer = writerOn({ insert: () => never });
  const large = { ...rowFor(1), input: "", output: "", response: "x".repeat(256 * 1024) };
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
