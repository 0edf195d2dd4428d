import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { isoTime } from "../../src/kernel/clock.ts";
import { UsageStore } from "../../src/rooms/usage/for-thread.ts";
import type { RequestRow } from "../../src/rooms/usage/index.ts";
import { usagePage } from "../../src/rooms/usage/list.ts";
import { requestRow } from "../support/request-lines.ts";

const NOW_MS = Date.parse("2026-11-16T12:00:00Z");
const DAY_MS = 86_400_000;

const row = (userId: string, project: string | null, atMs: number) => requestRow({ userId, project, atMs });

const newestFirst = (a: RequestRow, b: RequestRow) => b.atMs - a.atMs || (a.requestId < b.requestId ? -1 : 1);

onEachDatabase("a person's rows", (fresh) => {
  for (const projectCount of [0, 1, 5, 300, 1_100])
    test(`of ${projectCount} projects come in the right order on every page`, () =>
      withDatabase(fresh, async (db) => {
        const [me, other] = [crypto.randomUUID(), crypto.randomUUID()];
        const projects = [null, ...Array.from({ length: projectCount }, (_, n) => `project ${n}`)];
        const rows = Array.from({ length: Math.max(600, projectCount * 2) }, (_, n) =>
          // Over a good four months, often several in the same millisecond.
          row(
            me,
            projects[n % projects.length]!,
            NOW_MS - Math.floor(Math.floor(Math.random() * 1_000) * (DAY_MS / 7)),
          ),
        );
        const theirs = Array.from({ length: 50 }, () => row(other, "project 0", NOW_MS));
        const store = new UsageStore(db);
        for (let at = 0; at < rows.length; at += 500)
          await db.transaction((tx) => store.insert(tx, rows.slice(at, at + 500)));
        await db.transaction((tx) => store.insert(tx, theirs));
        const fromMs = Date.parse("2026-08-01T00:00:00Z");
        const pages = [
          [1, 0],
          [50, 0],
          [50, 37],
          [200, 400],
          [50, rows.length - 7],
          [50, rows.length],
          [50, Number.MAX_SAFE_INTEGER - 50],
        ] as const;
        for (const project of [null, "project 0", "nobody's"]) {
          const expected = rows
            .filter((one) => one.atMs >= fromMs && (project === null || one.project === project))
            .sort(newestFirst);
          for (const [limit, offset] of pages) {
            const page = await usagePage(db, { userId: me, project, limit, offset, fromMs });
            expect(page.total).toBe(expected.length);
            expect(page.records.map(({ id, created_at }) => [id, created_at])).toEqual(
              expected.slice(offset, offset + limit).map(({ requestId, atMs }) => [requestId, isoTime(atMs)]),
            );
          }
        }
      }));
});
