/** Lists and figures of requests, and what becomes of old ones. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import type { RequestLine } from "../../src/kernel/request-row.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { UNCHARGED_PER_MINUTE_MAX } from "../../src/rooms/requests/service.ts";
import type { RequestRow } from "../../src/rooms/usage/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import { requestRow } from "../support/request-lines.ts";
import { ADMIN, listed, NOW, room } from "./room.ts";
import { idAt, seedRequests, writeRows } from "./support.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const idsOf = (rows: readonly RequestRow[]) => rows.map(({ requestId }) => requestId);
const newestFirst = (rows: readonly RequestRow[]) =>
  rows.toSorted((a, b) => b.atMs - a.atMs || (a.requestId < b.requestId ? 1 : -1));
const count = async (db: Database) => (await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM requests"))!.n;

onEachDatabase("requests", (fresh) => {
  test("pages follow each other without gaps or repeats, and filters find what is rare", () =>
    withDatabase(fresh, async (db) => {
      const seeded = newestFirst(await seedRequests(db, { count: 3_000, untilMs: NOW, days: 20, keys: 40 }));
      const requests = room(db);
      const walk = (params: object) => listed(requests, params);
      const found = (isWanted: (row: RequestRow) => boolean) => idsOf(seeded.filter(isWanted));
      expect(await walk({})).toEqual(idsOf(seeded));
      expect(found(({ model }) => model === "rare").length).toBeGreaterThan(0);
      expect(await walk({ model: "rare" })).toEqual(found(({ model }) => model === "rare"));
      expect(await walk({ outcome: "failed" })).toEqual(found(({ status }) => status! >= 500));
      expect(await walk({ model: "rare", outcome: "failed", limit: 1 })).toEqual(
        found(({ model, status }) => model === "rare" && status! >= 500),
      );
      const { keyId, userId } = seeded[7]!;
      expect(await walk({ key_id: keyId })).toEqual(found((row) => row.keyId === keyId));
      expect(await walk({ user_id: userId, limit: 3 })).toEqual(found((row) => row.userId === userId));
      expect(await walk({ user_id: userId, outcome: "refused" })).toEqual(
        found((row) => row.userId === userId && row.status === 429),
      );
      const since = NOW - 30 * HOUR;
      const until = NOW - 5 * HOUR - 600_000;
      const period = { since: new Date(since).toISOString(), until: new Date(until).toISOString() };
      const isWithin = ({ atMs }: RequestRow) => atMs >= since && atMs < until;
      expect(await walk(period)).toEqual(found(isWithin));
      expect(await walk({ ...period, model: "claude" })).toEqual(
        found((row) => isWithin(row) && row.model === "claude"),
      );
      await requests.close();
    }));

  test("those of one moment are listed in order, page by page", () =>
    withDatabase(fresh, async (db) => {
      const rows = Array.from({ length: 1_200 }, (_, i) =>
        requestRow({
          requestId: idAt(NOW, (i * 7_919) % 1_200),
          atMs: NOW - 40 + (i % 40),
          model: i % 300 === 0 ? "rare" : "common",
        }),
      );
      await writeRows(db, rows);
      const requests = room(db, { clock: new ManualClock(NOW + 1_000) });
      expect(await listed(requests, { limit: 30 })).toEqual(idsOf(newestFirst(rows)));
      const rare = newestFirst(rows.filter(({ model }) => model === "rare"));
      expect(await listed(requests, { model: "rare", limit: 3 })).toEqual(idsOf(rare));
      for (const id of idsOf(rare))
        expect(await requests.get(ADMIN, id)).toMatchObject({ id, model: "rare" });
      await requests.close();
    }));

  test("a charge that is not a request of its own is no request", () =>
    withDatabase(fresh, async (db) => {
      const atMs = NOW - 1_000;
      const rows = [requestRow({ atMs }), requestRow({ atMs, surface: null, status: null })];
      await writeRows(db, rows);
      const requests = room(db);
      expect(await listed(requests)).toEqual([rows[0]!.requestId]);
      const { totals, askers } = await requests.stats(ADMIN, { everyone: true, by: "key" });
      expect([totals.requests, totals.completion_tokens, askers.length]).toEqual([1, 20, 1]);
      await requests.close();
    }));

  test("stats are the sums of the rows, by hour or by day, and of the period before", () =>
    withDatabase(fresh, async (db) => {
      const seeded = await seedRequests(db, { count: 4_000, untilMs: NOW, days: 20, keys: 10 });
      const requests = room(db);
      const { userId } = seeded[0]!;
      for (const days of [0.25, 1, 3, 9])
        for (const user of [undefined, userId!]) {
          const since = new Date(NOW - days * DAY).toISOString();
          const until = new Date(NOW).toISOString();
          const scope = { everyone: true, since, until, user_id: user };
          const stats = await requests.stats(ADMIN, { ...scope, by: "key" });
          const [fromMs, belowMs] = [Date.parse(stats.since), Date.parse(stats.until)];
          expect(fromMs).toBeLessThanOrEqual(Date.parse(since));
          expect(belowMs).toBeGreaterThanOrEqual(NOW);
          expect(stats.bins.length).toBeLessThanOrEqual(101);
          const within = (from: number, below: number) =>
            seeded.filter(
              (row) => row.atMs >= from && row.atMs < below && (user === undefined || row.userId === user),
            );
          const rows = within(fromMs, belowMs);
          const failed = rows.filter(({ status }) => status! >= 500);
          expect(stats.totals).toMatchObject({ requests: rows.length, failed: failed.length });
          expect(stats.before.requests).toBe(within(2 * fromMs - belowMs, fromMs).length);
          const binned = stats.bins.reduce(
            (sum, { ok, refused, failed: broke, left }) => sum + ok + refused + broke + left,
            0,
          );
          expect(binned).toBe(rows.length);
          for (const { name, requests: ofModel } of stats.models)
            expect(ofModel).toBe(rows.filter(({ model }) => model === name).length);
          expect(stats.askers.reduce((sum, { requests: ofKey }) => sum + ofKey, 0)).toBe(rows.length);
          const times = rows
            .filter(({ status }) => status! < 400)
            .map(({ durationMs }) => durationMs)
            .sort((a, b) => a - b);
          if (times.length < 50) continue;
          // Read from a histogram whose bounds double.
          const exact = times[Math.floor(times.length / 2)]!;
          expect(stats.totals.duration.p50_ms!).toBeGreaterThan(exact / 2);
          expect(stats.totals.duration.p50_ms!).toBeLessThan(exact * 2);
        }
      await requests.close();
    }));

  test("who asked most, by key, user, group, project and reference: of whole days and the rest, of a model too", () =>
    withDatabase(fresh, async (db) => {
      const past = { count: 2_000, untilMs: NOW, days: 8, keys: 10, refEvery: 100 };
      const seeded = (await seedRequests(db, past)).map((row) => ({ ...row, groupId: null }));
      const groupId = crypto.randomUUID();
      const refused = { groupId, userId: null, keyId: null, channel: null, status: 401 };
      const ofGroup = [1, 2, 3].map((i) => requestRow({ atMs: NOW - i * DAY, ...refused }));
      await writeRows(db, ofGroup);
      const requests = room(db);
      const columns = {
        key: "keyId",
        user: "userId",
        group: "groupId",
        project: "project",
        ref: "refId",
      } as const;
      const since = new Date(NOW - 5 * DAY).toISOString();
      for (const model of [undefined, "claude"])
        for (const by of ["key", "user", "group", "project", "ref"] as const) {
          const stats = await requests.stats(ADMIN, { everyone: true, since, model, by });
          const expected = new Map<string | null, number>();
          for (const row of [...seeded, ...ofGroup]) {
            if (row.atMs < Date.parse(stats.since) || (model && row.model !== model)) continue;
            expected.set(row[columns[by]], (expected.get(row[columns[by]]) ?? 0) + 1);
          }
          expect(expected.size).toBeGreaterThan(0);
          expect(new Map(stats.askers.map(({ id, requests: count }) => [id, count]))).toEqual(expected);
        }
      await requests.close();
    }));

  test("what nobody was charged for goes when it is too old or too much; sums stay longer", () =>
    withDatabase(fresh, async (db) => {
      const seeded = await seedRequests(db, { count: 3_000, untilMs: NOW, days: 20, keys: 5 });
      const uncharged = newestFirst(seeded.filter(({ channel }) => channel === null));
      const requests = room(db, { settings: { requestRecordsDays: 10, requestRecordsMax: 20 } });
      const since = new Date(NOW - 12 * DAY).toISOString();
      const before = await requests.stats(ADMIN, { everyone: true, since });
      while ((await requests.sweepRows(NOW, 10)) > 0);
      expect(await count(db)).toBe(seeded.length - uncharged.length + 20);
      expect((await listed(requests, { outcome: "failed" })).length).toBeLessThanOrEqual(20);
      // Older ones that were charged are usage, and are listed there.
      expect((await listed(requests)).length).toBeLessThan(seeded.length / 1.9);
      while ((await requests.sweepSums(NOW, 50)) > 0);
      const after = await requests.stats(ADMIN, { everyone: true, since: before.since });
      expect(after.totals).toEqual(before.totals);
      while ((await requests.sweepSums(NOW + 40 * DAY, 50)) > 0);
      const grains = await db.all("SELECT DISTINCT grain_ms FROM request_sums");
      expect(grains).toEqual([{ grain_ms: DAY }]);
      while ((await requests.sweepRows(NOW + 40 * DAY, 50)) > 0);
      expect(await count(db)).toBe(seeded.length - uncharged.length);
      await requests.close();
    }));
});

test("a flood of requests without a charge is counted, not written, apart for each account", async () => {
  const lines: RequestLine[] = [];
  const metrics = new Metrics();
  const clock = new ManualClock(NOW);
  const write = (line: RequestLine) => lines.push(line) > 0;
  const requests = room({} as Database, { metering: { write }, metrics, clock });
  const refuse = (times: number, userId: string | null) => {
    for (let n = 0; n < times; n++) {
      const record = requests.open("/v1/chat/completions", idAt(clock.now(), n))!;
      if (userId) record.addDetails({ userId });
      record.end(401);
    }
  };
  refuse(UNCHARGED_PER_MINUTE_MAX + 7, null);
  expect(lines).toHaveLength(UNCHARGED_PER_MINUTE_MAX);
  expect(metrics.text()).toContain("gateway_requests_unwritten_total 7");
  refuse(3, "00000000-0000-4000-8000-00000000000a");
  expect(lines).toHaveLength(UNCHARGED_PER_MINUTE_MAX + 3);
  clock.advance(60_000);
  refuse(2, null);
  expect(lines).toHaveLength(UNCHARGED_PER_MINUTE_MAX + 5);
  await requests.close();
});
