import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { Outage } from "../../src/kernel/errors.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import { nextTurn } from "../../src/kernel/turns.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { BLOCK_ROWS_MAX, type Block, requestsIn, rowsIn } from "../../src/rooms/requests/blocks.ts";
import { firstIdAt, numberFor } from "../../src/rooms/requests/rows.ts";
import { RequestStore } from "../../src/rooms/requests/store.ts";
import { RecordWriter, SUMS_EVERY_MS, type WriterOptions } from "../../src/rooms/requests/writer.ts";
import { TARGETS_MAX } from "../../src/rooms/routing/model-routes.ts";
import { ADMIN, listed, NOW, room, seconds, writerNeeds } from "./room.ts";
import { seedRequests, storedRows } from "./support.ts";

const HOUR = 3_600_000;

/** Somebody may set the machine's clock; time goes on all the same. */
class SettableClock extends ManualClock {
  setBackMs = 0;
  override now(): number {
    return super.now() - this.setBackMs;
  }
}

onEachDatabase("request records", (fresh) => {
  test("pages follow each other without gaps or repeats, and filters find what is rare", () =>
    withDatabase(fresh, async (db) => {
      const seeded = await seedRequests(db, { count: 3_000, untilMs: NOW, days: 20, keys: 40 });
      const requests = room(db);
      const walk = (params: object) => listed(requests, params);
      const newestFirst = seeded.toSorted((a, b) => (a.id < b.id ? 1 : -1));
      const idsOf = (rows: typeof seeded) => rows.map(({ id }) => id);
      expect(await walk({})).toEqual(idsOf(newestFirst));
      const rare = newestFirst.filter(({ model }) => model === "rare");
      expect(rare.length).toBeGreaterThan(0);
      expect(await walk({ model: "rare" })).toEqual(idsOf(rare));
      expect(await walk({ outcome: "failed" })).toEqual(
        idsOf(newestFirst.filter(({ status }) => status >= 500)),
      );
      const { keyId } = newestFirst[7]!;
      expect(await walk({ key_id: keyId })).toEqual(idsOf(newestFirst.filter((row) => row.keyId === keyId)));
      const since = new Date(NOW - 30 * HOUR).toISOString();
      const until = new Date(NOW - 5 * HOUR - 600_000).toISOString();
      expect(await walk({ since, until })).toEqual(
        idsOf(newestFirst.filter(({ atMs }) => atMs >= Date.parse(since) && atMs < Date.parse(until))),
      );
      await requests.close();
    }));

  test("stats are the sums of the rows, by hour or by day, and of the period before", () =>
    withDatabase(fresh, async (db) => {
      const seeded = await seedRequests(db, { count: 4_000, untilMs: NOW, days: 20, keys: 10 });
      const requests = room(db);
      for (const days of [0.25, 1, 3, 9]) {
        const since = new Date(NOW - days * 24 * HOUR).toISOString();
        const until = new Date(NOW).toISOString();
        const stats = await requests.stats(ADMIN, { everyone: true, since, until, with_keys: true });
        const [fromMs, belowMs] = [Date.parse(stats.since), Date.parse(stats.until)];
        expect(fromMs).toBeLessThanOrEqual(Date.parse(since));
        expect(belowMs).toBeGreaterThanOrEqual(NOW);
        expect(stats.bins.length).toBeLessThanOrEqual(101);
        const within = (from: number, below: number) =>
          seeded.filter(({ atMs }) => atMs >= from && atMs < below);
        const rows = within(fromMs, belowMs);
        const failed = rows.filter(({ status }) => status >= 500);
        expect(stats.totals).toMatchObject({ requests: rows.length, failed: failed.length });
        expect(stats.before.requests).toBe(within(2 * fromMs - belowMs, fromMs).length);
        const binned = stats.bins.reduce(
          (sum, { ok, refused, failed: broke, left }) => sum + ok + refused + broke + left,
          0,
        );
        expect(binned).toBe(rows.length);
        for (const { name, requests: count } of stats.models)
          expect(count).toBe(rows.filter(({ model }) => model === (name ?? "")).length);
        expect(stats.keys.reduce((sum, { requests: count }) => sum + count, 0)).toBe(rows.length);
        const times = rows
          .filter(({ status }) => status < 400)
          .map(({ durationMs }) => durationMs)
          .sort((a, b) => a - b);
        if (times.length < 50) continue;
        // Read from a histogram whose bounds double.
        const exact = times[Math.floor(times.length / 2)]!;
        expect(stats.totals.duration.p50_ms!).toBeGreaterThan(exact / 2);
        expect(stats.totals.duration.p50_ms!).toBeLessThan(exact * 2);
      }
      const { userId } = seeded[0]!;
      const own = await requests.stats({ ...ADMIN, userId }, {});
      const dayAgo = Date.parse(own.since);
      expect(own.totals.requests).toBe(
        seeded.filter((row) => row.userId === userId && row.atMs >= dayAgo).length,
      );
      await requests.close();
    }));

  test("what is too old or too much goes in small steps; sums stay longer", () =>
    withDatabase(fresh, async (db) => {
      await seedRequests(db, { count: 500, untilMs: NOW, days: 20, keys: 5 });
      const count = async () => (await storedRows(db)).length;
      const requests = room(db, new ManualClock(NOW), { keptDays: 10, keptMax: 100 });
      const before = await requests.stats(ADMIN, {
        everyone: true,
        since: new Date(NOW - 12 * 24 * HOUR).toISOString(),
      });
      while ((await requests.sweepRecords(NOW, 50)) > 0);
      expect(await count()).toBe(100);
      const { id: oldestId } = (await storedRows(db)).at(-1)!;
      expect(oldestId > firstIdAt(NOW - 10 * 24 * HOUR)).toBe(true);
      while ((await requests.sweepSums(NOW, 50)) > 0);
      const after = await requests.stats(ADMIN, { everyone: true, since: before.since });
      expect(after.totals).toEqual(before.totals);
      while ((await requests.sweepSums(NOW + 40 * 24 * HOUR, 50)) > 0);
      expect(await db.get("SELECT COUNT(*) AS n FROM request_sums")).toEqual({ n: 0 });
      await requests.close();
    }));

  test("the cut by number spares at most a block", () =>
    withDatabase(fresh, async (db) => {
      const endMs = NOW - (NOW % 60_000) + 59_000;
      await seedRequests(db, { count: 11_000, untilMs: endMs, days: 50 / 86_400, keys: 2 });
      for (const keptMax of [20_000, 10_500, 9_000, 7]) {
        const requests = room(db, new ManualClock(endMs), { keptMax });
        while ((await requests.sweepRecords(endMs, 5_000)) > 0);
        const left = (await storedRows(db)).length;
        expect(left).toBeGreaterThanOrEqual(Math.min(11_000, keptMax));
        expect(left).toBeLessThan(keptMax + BLOCK_ROWS_MAX);
        await requests.close();
      }
    }));

  test("the cut by number spares an hour whose minutes are no longer known", () =>
    withDatabase(fresh, async (db) => {
      const endMs = NOW - (NOW % HOUR) - 5 * 24 * HOUR;
      await seedRequests(db, { count: 6_000, untilMs: endMs, days: 1 / 24, keys: 2 });
      const requests = room(db, new ManualClock(NOW), { keptMax: 5_500 });
      while ((await requests.sweepSums(NOW, 50_000)) > 0);
      expect(await requests.sweepRecords(NOW, 5_000)).toBe(0);
      await requests.close();
    }));

  test("requests of one moment are listed in order, from however many blocks", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const writer = new RecordWriter({ store, clock: new ManualClock(NOW), ...writerNeeds() });
      const ids = Array.from(
        { length: 1_200 },
        (_, i) =>
          `${firstIdAt(NOW + (i % 40)).slice(0, 13)}-7000-8000-${((i * 7_919) % 1_200).toString(16).padStart(12, "0")}`,
      );
      for (const [i, id] of ids.entries()) {
        const record = new RequestRecord(writer, "/v1/chat/completions", id);
        record.route = { model: i % 300 === 0 ? "rare" : "common", name: "", reason: "" };
        record.end(200);
        // Another block, at any place.
        if (i % 50 === 0) await writer.flush(1_000);
      }
      await writer.close(1_000);
      const requests = room(db, new ManualClock(NOW + 1_000));
      expect(await listed(requests, { limit: 30 })).toEqual(ids.toSorted().toReversed());
      const rare = ids.filter((_, i) => i % 300 === 0);
      expect(await listed(requests, { model: "rare", limit: 3 })).toEqual(rare.toSorted().toReversed());
      for (const id of rare) expect(await requests.get(ADMIN, id)).toMatchObject({ id, model: "rare" });
      await requests.close();
    }));

  test("a batch whose commit is in doubt is written once", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      let fails = 1;
      const clock = new ManualClock(NOW);
      const dropped = new Metrics().counter("dropped", "");
      const writer = new RecordWriter({
        store: {
          addSums: (sums) => store.addSums(sums),
          async insert(batch) {
            await store.insert(batch);
            if (fails-- > 0) throw new Error("the connection broke after the commit");
          },
        },
        clock,
        ...writerNeeds(),
        dropped,
      });
      const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW));
      record.used({ promptTokens: 1, completionTokens: 2, isEstimated: false }, 5);
      record.end(200);
      await writer.flush(1_000);
      expect(writer.waitingCount).toBe(1);
      clock.advance(3_000);
      await writer.flush(1_000);
      expect(writer.waitingCount).toBe(0);
      expect(await storedRows(db)).toHaveLength(1);
      const sums = await db.all<{ requests: number }>(
        "SELECT requests FROM request_sums UNION ALL SELECT requests FROM request_asker_sums",
      );
      expect(sums.map(({ requests }) => requests)).toEqual([1, 1, 1, 1, 1, 1]);
      await writer.close(1_000);
      expect(dropped.total()).toBe(0);
    }));

  test("a request is listed though another of the same key and kind was refused by the database before", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const clock = new ManualClock(NOW);
      const writer = new RecordWriter({
        store: {
          addSums: (...sums) => store.addSums(...sums),
          async insert(batch) {
            if (batch.blocks.some(({ records }) => Buffer.from(records).includes("poison")))
              throw new Error("refused");
            await store.insert(batch);
          },
        },
        clock,
        ...writerNeeds(),
      });
      const end = (id: string, refId: string | null) => {
        const record = new RequestRecord(writer, "/v1/chat/completions", id);
        record.also({ userId: ADMIN.userId });
        record.also({ refId: refId });
        record.end(200);
      };
      end(firstIdAt(NOW), "poison");
      await writer.flush(100);
      const good = firstIdAt(NOW + 1);
      end(good, null);
      for (let i = 0; i < 2; i++) {
        clock.advance(3_000);
        await writer.flush(1_000);
      }
      await writer.close(1_000);
      const requests = room(db, new ManualClock(NOW + 1_000));
      expect(await listed(requests)).toEqual([good]);
      await requests.close();
    }));

  test("requests are listed once the database takes names that it refused for a while, also one by one", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const clock = new ManualClock(NOW);
      let isRefusing = true;
      const writer = new RecordWriter({
        store: {
          addSums: (...sums) => store.addSums(...sums),
          async insert(batch) {
            if (isRefusing) throw new Error("canceling statement due to lock timeout");
            await store.insert(batch);
          },
        },
        clock,
        ...writerNeeds(),
      });
      const end = (id: string, userId: string) => {
        const record = new RequestRecord(writer, "/v1/chat/completions", id);
        record.also({ userId: userId });
        record.end(200);
      };
      end(firstIdAt(NOW), ADMIN.userId);
      await writer.flush(100);
      const waiting = firstIdAt(NOW + 1);
      end(waiting, firstIdAt(7));
      clock.advance(3_000);
      await writer.flush(1_000);
      isRefusing = false;
      clock.advance(3_000);
      const later = firstIdAt(NOW + 2);
      end(later, ADMIN.userId);
      await writer.close(1_000);
      const requests = room(db, new ManualClock(NOW + 1_000));
      expect(await listed(requests)).toEqual([later, waiting]);
      expect(await listed(requests, { user_id: ADMIN.userId })).toEqual([later]);
      await requests.close();
    }));

  test("two instances that first see the same people in opposite order do not block each other", () =>
    withDatabase(fresh, async (db) => {
      const warnings: string[] = [];
      const log = { ...silentLog, warn: (text: string) => warnings.push(text) };
      const opened = () =>
        new RecordWriter({
          ...writerNeeds(),
          log,
          store: new RequestStore(db),
          clock: new ManualClock(NOW),
        });
      const writers = [opened(), opened()];
      const people = 200;
      for (let round = 0; round < 10; round++) {
        for (const [at, writer] of writers.entries())
          for (let i = 0; i < people; i++) {
            const record = new RequestRecord(writer, "/v1/chat/completions", randomIds.ordered());
            record.also({ userId: firstIdAt(round * people + (at === 0 ? i : people - 1 - i)) });
            record.end(200);
          }
        await Promise.all(writers.map((writer) => writer.flush(10_000)));
      }
      for (const writer of writers) await writer.close(10_000);
      expect(warnings).toEqual([]);
      expect(await storedRows(db)).toHaveLength(10 * people * writers.length);
    }));

  test("requests that end while sums are written are counted, too", () =>
    withDatabase(fresh, async (db) => {
      const store = new RequestStore(db);
      const writer = new RecordWriter({
        store,
        clock: new ManualClock(NOW),
        ...writerNeeds(),
      });
      let count = 0;
      const end = (records: number) => {
        for (let i = 0; i < records; i++, count++) {
          const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW + count));
          record.also({ userId: firstIdAt(count % 300) });
          record.end(200);
        }
      };
      for (let i = 0; i < 5; i++) {
        end(300);
        const flushed = writer.flush(10_000);
        for (let turn = 0; turn < 20; turn++) {
          end(33);
          await nextTurn();
        }
        await flushed;
      }
      await writer.close(10_000);
      expect(await storedRows(db)).toHaveLength(count);
      const summed = (table: string, where = "") =>
        db.get(`SELECT CAST(SUM(requests) AS BIGINT) AS n FROM ${table} ${where}`);
      for (const grainMs of [60_000, HOUR, 24 * HOUR])
        for (const table of ["request_sums", "request_asker_sums"])
          expect(await summed(table, `WHERE grain_ms = ${grainMs}`)).toEqual({ n: count });
      expect(await summed("request_asker_days")).toEqual({ n: count });
    }));
});

test("while the database is away records wait, a bounded number of them, and the rest are counted", async () => {
  const clock = new ManualClock(NOW);
  const dropped = new Metrics().counter("dropped", "");
  const written: (readonly Block[])[] = [];
  let isAway = true;
  const writer = new RecordWriter({
    store: {
      async insert({ blocks }) {
        if (isAway) throw new Outage("away");
        written.push(blocks);
      },
      addSums: async () => {},
    },
    clock,
    ...writerNeeds(),
    dropped,
  });
  const count = 30_000;
  for (let i = 0; i < count; i++) {
    new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW + i)).end(200);
    if (i === 10) await writer.flush(100);
  }
  const kept = writer.waitingCount;
  expect(kept).toBeGreaterThan(10_000);
  expect(dropped.total()).toBe(count - kept);
  isAway = false;
  clock.advance(3_000);
  await writer.close(60_000);
  expect(requestsIn(written.flat())).toBe(kept);
  // The loop is not held for all of them.
  const bytesOf = (blocks: readonly Block[]) => blocks.reduce((sum, block) => sum + block.records.length, 0);
  expect(Math.max(...written.map(bytesOf))).toBeLessThan(600_000);
});

test("records are written though the machine's clock is set back while the database is away", async () => {
  const clock = new SettableClock(NOW);
  let [written, added, isAway] = [0, 0, true];
  const writer = new RecordWriter({
    store: {
      async insert({ blocks }) {
        if (isAway) throw new Outage("away");
        written += requestsIn(blocks);
      },
      addSums: async (sums) => {
        added += sums.size;
      },
    },
    clock,
    ...writerNeeds(),
  });
  const askers = 100;
  for (let i = 0; i < askers; i++) {
    const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW + i));
    record.also({ userId: firstIdAt(i) });
    record.end(200);
  }
  await seconds(clock, 1);
  clock.setBackMs = HOUR;
  isAway = false;
  await seconds(clock, SUMS_EVERY_MS / 1_000);
  expect(written).toBe(askers);
  expect(added).toBe(askers);
  await writer.close(100);
});

test("sums are gathered over several writes, wait for the database, and are added once", async () => {
  const clock = new ManualClock(NOW);
  const added: number[] = [];
  let isAway = false;
  const writer = new RecordWriter({
    store: {
      insert: async () => {},
      async addSums(sums) {
        if (isAway) throw new Outage("away");
        for (const [, , requests] of sums.askerDays()) added.push(requests!);
      },
    },
    clock,
    ...writerNeeds(),
  });
  let id = 0;
  const ASKERS = 100;
  const ask = () => {
    for (let asker = 0; asker < ASKERS; asker++) {
      const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW + id++));
      record.also({ userId: `user ${asker}` });
      record.end(200);
    }
  };
  for (let i = 0; i < 4; i++) {
    ask();
    await seconds(clock, 1);
  }
  expect(writer.waitingCount).toBe(0);
  expect(added).toEqual([]);
  isAway = true;
  await seconds(clock, SUMS_EVERY_MS / 1_000);
  ask();
  isAway = false;
  await seconds(clock, SUMS_EVERY_MS / 1_000);
  const ofAll = (...requests: number[]) => requests.flatMap((each) => new Array(ASKERS).fill(each));
  // Those that met the outage stay apart: perhaps the database has them.
  expect(added).toEqual(ofAll(4, 1));
  ask();
  await writer.close(100);
  expect(added).toEqual(ofAll(4, 1, 1));
});

/** A writer, what it wrote and what it dropped; the first writes fail as told. */
function countedWriter(options: Partial<WriterOptions>, failures: Error[] = []) {
  const dropped = new Metrics().counter("dropped", "");
  let written = 0;
  const writer = new RecordWriter({
    ...writerNeeds(),
    clock: new ManualClock(NOW),
    store: {
      async insert({ blocks }) {
        const failure = failures.shift();
        if (failure) throw failure;
        written += requestsIn(blocks);
      },
      addSums: async () => {},
    },
    dropped,
    ...options,
  });
  return { writer, counts: () => ({ written, dropped: dropped.total() }) };
}

test("a request that cannot be recorded is dropped, and harms neither its end nor later ones", async () => {
  const { writer, counts } = countedWriter({
    knownModel: (asked) => {
      if (asked === "odd") throw new Error("broken");
      return asked;
    },
  });
  for (const model of ["odd", "even", "odd", "even", "even"]) {
    const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW));
    record.modelAsked = model;
    record.end(200);
  }
  await writer.close(100);
  expect(counts()).toEqual({ written: 3, dropped: 2 });
});

test.each(["row", "model"])("a %s that the database refuses does not stop later ones", async (what) => {
  const clock = new ManualClock(NOW);
  const dropped = new Metrics().counter("dropped", "");
  const written: string[] = [];
  const writer = new RecordWriter({
    store: {
      async insert({ blocks, facets }) {
        if (blocks.some(({ records }) => Buffer.from(records).includes("poison"))) throw new Error("refused");
        if (facets.some(({ model }) => model === "poison")) throw new Error("refused");
        written.push(...blocks.flatMap(rowsIn).map(({ id }) => id));
      },
      addSums: async () => {},
    },
    clock,
    ...writerNeeds(),
    dropped,
  });
  const poison = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW));
  if (what === "row") poison.also({ refId: "poison" });
  else poison.route = { model: "poison", name: "", reason: "" };
  poison.end(200);
  await writer.flush(100);
  new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW + 1)).end(200);
  for (let i = 0; i < 2; i++) {
    clock.advance(3_000);
    await writer.flush(100);
  }
  await writer.close(100);
  expect(written).toEqual([firstIdAt(NOW + 1)]);
  expect(dropped.total()).toBe(1);
});

test("what the database refuses once is written, also after an outage", async () => {
  const clock = new ManualClock(NOW);
  const failures = [new Outage("away"), new Error("refused"), new Outage("away")];
  const { writer, counts } = countedWriter({ clock }, failures);
  new RequestRecord(writer, "/v1/chat/completions", firstIdAt(NOW)).end(200);
  for (let i = 0; i < 4; i++) {
    await writer.flush(100);
    clock.advance(3_000);
  }
  await writer.close(100);
  expect(counts()).toEqual({ written: 1, dropped: 0 });
  expect(failures).toEqual([]);
});

test("numbers of combinations are the same everywhere, and fit a double", () => {
  expect(numberFor("facet", "a", 1, null)).toBe(numberFor("facet", "a", 1, null));
  expect(numberFor("facet", "a", 1, null)).not.toBe(numberFor("facet", "a", null, 1));
  expect(Number.isSafeInteger(numberFor("x"))).toBe(true);
});

test("blocks of requests that failed on every target of a long route are no larger than others", async () => {
  const blocks: Block[] = [];
  const writer = new RecordWriter({
    ...writerNeeds(),
    clock: new ManualClock(NOW),
    store: { insert: async (batch) => void blocks.push(...batch.blocks), addSums: async () => {} },
  });
  for (let i = 0; i < BLOCK_ROWS_MAX; i++) {
    const record = new RequestRecord(writer, "/v1/chat/completions", randomIds.ordered());
    for (let target = 0; target < TARGETS_MAX; target++) {
      record.sent({ model: "m", name: `b${target}`, reason: "fallback" });
      record.broke(new Error("no ".repeat(1_000)));
    }
    record.end(502);
  }
  await writer.close(1_000);
  expect(requestsIn(blocks)).toBe(BLOCK_ROWS_MAX);
  expect(Math.max(...blocks.map(({ records }) => records.length))).toBeLessThan(256 * 1_024);
});
