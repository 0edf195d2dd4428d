import { expect, test } from "bun:test";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, openStorage, withDatabase, withOwn } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Outage } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import { blocksOf } from "../../src/rooms/requests/blocks.ts";
import { MARKS_MAX, type Marks } from "../../src/rooms/requests/marks.ts";
import { firstIdAt, Rows } from "../../src/rooms/requests/rows.ts";
import { RequestStore } from "../../src/rooms/requests/store.ts";
import { Sums } from "../../src/rooms/requests/sums.ts";
import { RecordWriter, SUMS_EVERY_MS } from "../../src/rooms/requests/writer.ts";
import type { Database } from "../../src/storage/contract.ts";
import { listed, NOW, room, seconds, writerNeeds } from "./room.ts";
import { storedRows } from "./support.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;
const SURFACE = "/v1/chat/completions";
/** So many that their sums are gathered. */
const ASKERS = 100;

const later = (ms = 10 * MINUTE) => new ManualClock(NOW + ms);
const marksIn = (db: Database) =>
  db.all<{ from_ms: number; below_ms: number }>("SELECT * FROM request_marks");
const countIn = async (db: Database, table: string) =>
  (await db.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n;

/** Ends requests of many people that came at this time: their ids, newest first. */
function ask(opened: (id: string) => RequestRecord, fromMs: number): string[] {
  const ids = Array.from({ length: ASKERS }, (_, asker) => {
    const id = firstIdAt(fromMs + asker);
    const record = opened(id);
    record.also({ userId: firstIdAt(asker) });
    record.end(200);
    return id;
  });
  return ids.toReversed();
}

function rowsWith(id: string): Rows {
  const rows = new Rows(1);
  const figures = { attempts: 1, queueMs: 0, firstTokenMs: null, durationMs: 0 };
  const usage = { promptTokens: 0, completionTokens: 0, costNanoUsd: null };
  rows.add({ id, askerId: 1, facetId: 1, ...figures, ...usage, reason: null, detail: null }, 200);
  return rows;
}

/** A writer, and the ids of requests that met an outage, which is over: the database takes them with the next write. */
async function waitingIn(store: RequestStore, addSums: RequestStore["addSums"]) {
  const clock = new ManualClock(NOW);
  let isAway = true;
  const insert: RequestStore["insert"] = (batch) =>
    isAway ? Promise.reject(new Outage("away")) : store.insert(batch);
  const writer = new RecordWriter({ ...writerNeeds(), clock, store: { insert, addSums } });
  const waited = ask((id) => new RequestRecord(writer, SURFACE, id), NOW - 120 * MINUTE);
  await writer.flush(10_000);
  isAway = false;
  clock.advance(10_000);
  return { writer, waited };
}

onEachDatabase("requests that are not in the sums", (fresh, kind) => {
  test.each([1, ASKERS])("are listed after the writer was killed, of %d people", async (askers) => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const script = join(import.meta.dir, "killed-writer.ts");
    const worker = Bun.spawn(
      [process.execPath, script, ...[options, NOW, askers].map((value) => JSON.stringify(value))],
      { stdout: "inherit", stderr: "inherit" },
    );
    await worker.exited;
    expect(worker.signalCode).toBe("SIGKILL");
    const stored = await storedRows(db);
    const people = await db.all<{ id: number; user_id: string }>("SELECT id, user_id FROM request_askers");
    const rows = stored.map(({ id, askerId }) => ({
      id,
      user_id: people.find((person) => person.id === askerId)!.user_id,
    }));
    expect(rows.length).toBeGreaterThan(500);
    expect(await countIn(db, "request_sums")).toBe(0);
    const requests = room(db, later());
    expect(await listed(requests)).toEqual(rows.map(({ id }) => id));
    const { user_id } = rows.at(-1)!;
    expect(await listed(requests, { user_id })).toEqual(
      rows.filter((row) => row.user_id === user_id).map(({ id }) => id),
    );
    await requests.close();
    await db.close();
    await drop();
  });

  test("are listed by other instances, also those that came long before they ended", () =>
    withDatabase(fresh, async (db) => {
      const clock = new ManualClock(NOW);
      const [first, second] = [room(db, clock), room(db, later(1_000))];
      const ids = ask((id) => first.open(SURFACE, id)!, NOW - 10 * MINUTE);
      clock.advance(1_000);
      await until("the records are written", async () => (await storedRows(db)).length === ASKERS);
      expect(await countIn(db, "request_sums")).toBe(0);
      expect(await listed(second)).toEqual(ids);
      expect(await listed(second, { user_id: firstIdAt(7) })).toEqual([firstIdAt(NOW - 10 * MINUTE + 7)]);
      expect(await listed(second, { since: new Date(NOW - 9 * MINUTE).toISOString() })).toEqual([]);
      await first.close();
      expect(await marksIn(db)).toEqual([]);
      expect(await listed(second)).toEqual(ids);
      await second.close();
    }));

  test("are listed when the database refuses their sums", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      let isRefused = true;
      const writer = new RecordWriter({
        ...writerNeeds(),
        clock: new ManualClock(NOW),
        store: {
          insert: (batch) => store.insert(batch),
          addSums: (sums, options) =>
            isRefused ? Promise.reject(new Error("out of range")) : store.addSums(sums, options),
        },
      });
      const refused = ask((id) => new RequestRecord(writer, SURFACE, id), NOW - 120 * MINUTE);
      await writer.flush(10_000);
      isRefused = false;
      const counted = ask((id) => new RequestRecord(writer, SURFACE, id), NOW);
      await writer.close(10_000);
      const minuteMs = NOW - 120 * MINUTE;
      expect(await marksIn(db)).toMatchObject([{ from_ms: minuteMs, below_ms: minuteMs + MINUTE }]);
      const requests = room(db, later());
      expect(await listed(requests)).toEqual([...counted, ...refused]);
      await requests.close();
    }));

  test("are listed when their sums were refused while they waited", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const failures = [new Error("out of range")];
      const { writer, waited } = await waitingIn(store, async (...said) => {
        const failure = failures.shift();
        return failure ? Promise.reject(failure) : store.addSums(...said);
      });
      const counted = ask((id) => new RequestRecord(writer, SURFACE, id), NOW);
      await writer.close(10_000);
      const requests = room(db, later());
      expect(await listed(requests)).toEqual([...counted, ...waited]);
      await requests.close();
    }));

  test("are listed when the database takes them before their sums, which met the same outage", () =>
    withDatabase(fresh, async (db) => {
      const { waited } = await waitingIn(new RequestStore(db), () => Promise.reject(new Outage("away")));
      await until("they are written", async () => (await storedRows(db)).length === ASKERS);
      // That writer is not heard of again.
      const requests = room(db, later());
      expect(await listed(requests)).toEqual(waited);
      await requests.close();
    }));

  test("are listed when it was in doubt whether sums before them were added", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const clock = new ManualClock(NOW);
      let fails = 1;
      const writer = new RecordWriter({
        ...writerNeeds(),
        clock,
        store: {
          insert: (batch) => store.insert(batch),
          async addSums(sums, options) {
            await store.addSums(sums, options);
            if (fails-- > 0) throw new Outage("the connection broke after the commit");
          },
        },
      });
      const opened = (id: string) => new RequestRecord(writer, SURFACE, id);
      const before = ask(opened, NOW);
      await writer.flush(10_000);
      expect(await marksIn(db)).toEqual([]);
      const last = opened(firstIdAt(NOW + 30_000));
      last.route = { model: "seldom used", name: "", reason: "" };
      last.end(200);
      clock.advance(1_000);
      await until("it is written", async () => (await storedRows(db)).length === ASKERS + 1);
      // That writer is not heard of again.
      const requests = room(db, later());
      expect(await listed(requests, { model: "seldom used" })).toEqual([last.id]);
      expect(await listed(requests)).toEqual([last.id, ...before]);
      await requests.close();
    }));

  // With SQLite an error says that nothing was added.
  test.if(kind === "postgres")("are counted once when it was in doubt whether their sums were added", () =>
    withDatabase(fresh, async (db) => {
      let breaks: "before the commit" | "after the commit" | null = null;
      const breaking = withOwn(db, "transaction", async (work, options) => {
        const result = await db.transaction(async (tx) => {
          const done = await work(tx);
          if (breaks === "before the commit") throw new Outage("the connection broke");
          return done;
        }, options);
        if (breaks === "after the commit") throw new Outage("the connection broke");
        return result;
      });
      const store = new RequestStore(db);
      const doubtful = new RequestStore(breaking);
      const writer = new RecordWriter({
        ...writerNeeds(),
        clock: new ManualClock(NOW),
        store: {
          insert: (batch) => store.insert(batch),
          addSums: (sums, options) => doubtful.addSums(sums, options),
        },
      });
      const counted = async () => {
        const [days, minutes] = await Promise.all([
          db.get<{ n: number }>("SELECT CAST(SUM(requests) AS BIGINT) AS n FROM request_asker_days"),
          db.get<{ n: number }>(
            "SELECT CAST(SUM(requests) AS BIGINT) AS n FROM request_sums WHERE grain_ms = $1",
            [MINUTE],
          ),
        ]);
        return [days!.n, minutes!.n];
      };
      let asked = 0;
      for (const moment of ["after the commit", "before the commit", "after the commit"] as const) {
        breaks = moment;
        ask((id) => new RequestRecord(writer, SURFACE, id), NOW + asked);
        await writer.flush(10_000);
        // More come before the connection is there again.
        ask((id) => new RequestRecord(writer, SURFACE, id), NOW + asked + MINUTE);
        await writer.flush(10_000);
        breaks = null;
        await writer.flush(10_000);
        asked += 2 * ASKERS;
        expect(await counted()).toEqual([asked, asked]);
      }
      await writer.close(10_000);
      expect(await counted()).toEqual([asked, asked]);
      expect(await marksIn(db)).toEqual([]);
    }),
  );

  test.if(kind === "postgres")("are counted once when a commit that was given up comes late", () =>
    withDatabase(fresh, async (db) => {
      const commit = Promise.withResolvers<void>();
      let late: Promise<unknown> | null = null;
      const lateAtFirst = withOwn(db, "transaction", (work, options) => {
        if (late) return db.transaction(work, options);
        const lost = Promise.withResolvers<never>();
        late = db.transaction(async (tx) => {
          await work(tx);
          lost.reject(new Outage("the server does not answer"));
          await commit.promise;
        }, options);
        return lost.promise;
      });
      const store = new RequestStore(lateAtFirst);
      const sums = new Sums();
      sums.add(rowsWith(firstIdAt(NOW)));
      const added = () =>
        store.addSums(sums).then(
          () => "added",
          (error) => error,
        );
      expect(await added()).toBeInstanceOf(Outage);
      const again = added();
      // Whoever adds them now waits for the rows, which the first transaction has locked.
      await Promise.race([again, Bun.sleep(500)]);
      commit.resolve();
      await late;
      expect(await again).toBeInstanceOf(Outage);
      expect(await added()).toBe("added");
      expect(await db.all("SELECT requests FROM request_asker_days")).toEqual([{ requests: 1 }]);
    }),
  );

  test("are listed however many marks crashes left, until the sums of their time are deleted", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const crashes = MARKS_MAX + 200;
      const ids: string[] = [];
      for (let i = 0; i < crashes; i++) {
        const atMs = NOW - i * 20 * MINUTE;
        ids.push(firstIdAt(atMs));
        const minutes = [atMs - (atMs % MINUTE)];
        await store.insert({
          blocks: blocksOf(rowsWith(ids[i]!)),
          facets: i > 0 ? [] : [{ id: 1, surface: SURFACE, model: "", backend: "", status: 200, code: "" }],
          askers:
            i > 0
              ? []
              : [{ id: 1, userId: null, keyId: null, groupId: null, project: null, keyPrefix: null }],
          marks: [{ writerId: randomIds.uuid(), minutes }],
        });
      }
      const requests = room(db);
      expect(await requests.sweepSums(NOW, 1_000)).toBe(200);
      expect(await marksIn(db)).toHaveLength(MARKS_MAX);
      expect(await listed(requests, { limit: 500 })).toEqual(ids);
      expect(await requests.sweepSums(NOW + 70 * DAY, 1_000)).toBe(MARKS_MAX);
      expect(await marksIn(db)).toEqual([]);
      await requests.close();
    }));
});

test("minutes are marked once while sums are gathered, and no longer marked when these are added", async () => {
  const clock = new ManualClock(NOW);
  const marked: (readonly number[] | null)[] = [];
  const unmarked: (string | null)[] = [];
  const ids = new Set<string>();
  const writer = new RecordWriter({
    ...writerNeeds(),
    clock,
    store: {
      async insert({ marks = [] }: { marks?: readonly Marks[] }) {
        marked.push(marks[0]?.minutes ?? null);
        for (const { writerId } of marks) ids.add(writerId);
      },
      async addSums(_sums, { unmarkedId = null } = {}) {
        unmarked.push(unmarkedId);
      },
    },
  });
  const opened = (id: string) => new RequestRecord(writer, SURFACE, id);
  for (const atMs of [NOW, NOW + 1_000, NOW - 5 * MINUTE, NOW + 2_000, NOW - 5 * MINUTE]) {
    ask(opened, atMs);
    await seconds(clock, 1);
  }
  expect(marked).toEqual([[NOW], null, [NOW - 5 * MINUTE], null, null]);
  expect(unmarked).toEqual([]);
  await seconds(clock, SUMS_EVERY_MS / 1_000);
  expect(ids.size).toBe(1);
  expect(unmarked).toEqual([...ids]);
  // Few sums are added at once, but their marks stay for those that follow.
  marked.length = 0;
  unmarked.length = 0;
  for (let i = 0; i < 3; i++) {
    opened(firstIdAt(NOW)).end(200);
    await seconds(clock, 1);
  }
  expect(marked).toEqual([[NOW], null, null]);
  expect(unmarked).toEqual([null, null, null]);
  await seconds(clock, SUMS_EVERY_MS / 1_000);
  expect(unmarked).toEqual([null, null, null, ...ids]);
  await writer.close(1_000);
  expect(unmarked).toHaveLength(4);
});
