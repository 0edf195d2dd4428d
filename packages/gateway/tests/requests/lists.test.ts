/** Lists of requests: what lies at the edges of hours and blocks, and what is rare among very many. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import { nextTurn } from "../../src/kernel/turns.ts";
import { firstIdAt } from "../../src/rooms/requests/rows.ts";
import { RequestStore } from "../../src/rooms/requests/store.ts";
import { RecordWriter } from "../../src/rooms/requests/writer.ts";
import type { Database } from "../../src/storage/contract.ts";
import { ADMIN, listed, NOW, room, writerNeeds } from "./room.ts";

const HOUR = 3_600_000;
const BUCKET_MS = 256;
const SURFACE = "/v1/chat/completions";
const USER = "00000000-0000-4000-8000-00000000000a";

interface Past {
  atMs: number;
  model?: string;
}

/** Writes requests of one person: their ids, newest first. */
async function write(db: Database, past: readonly Past[]): Promise<string[]> {
  const store = new RequestStore(db);
  const writer = new RecordWriter({ store, clock: new ManualClock(NOW), ...writerNeeds() });
  const ids = past.map(({ atMs, model = "common" }, i) => {
    const id = `${firstIdAt(atMs).slice(0, 13)}-7000-8000-${i.toString(16).padStart(12, "0")}`;
    const record = new RequestRecord(writer, SURFACE, id);
    record.also({ userId: USER });
    record.route = { model: model, name: "", reason: "" };
    record.end(200);
    return id;
  });
  await writer.close(10_000);
  return ids.toSorted().toReversed();
}

onEachDatabase("lists of requests", (fresh) => {
  test("a block that reaches from one hour into the next is read once", () =>
    withDatabase(fresh, async (db) => {
      let hourMs = NOW - (NOW % HOUR);
      while (hourMs % BUCKET_MS === 0) hourMs -= HOUR;
      const ids = await write(
        db,
        [-HOUR, -1, 20, 21, HOUR - 1].map((ms) => ({ atMs: hourMs + ms })),
      );
      const requests = room(db);
      for (const limit of [1, 2, 3, 50])
        expect(await listed(requests, { user_id: USER, limit })).toEqual(ids);
      await requests.close();
    }));

  test("a request of which the database lost the kind does not end the list", () =>
    withDatabase(fresh, async (db) => {
      const past = [1, 2, 3, 4, 5].map((n) => ({ atMs: NOW - n * 1_000, model: n === 2 ? "lost" : "kept" }));
      const ids = await write(db, past);
      await db.run("DELETE FROM request_facets WHERE model = 'lost'");
      const requests = room(db);
      for (const limit of [1, 2, 50])
        expect(await listed(requests, { limit })).toEqual(ids.filter((_, i) => i !== 1));
      await requests.close();
    }));

  test("other work has its turn while blocks are searched for what is rare", () =>
    withDatabase(fresh, async (db) => {
      const blocks = 640;
      const past = Array.from({ length: blocks }, (_, i) => ({ atMs: NOW - (i + 1) * BUCKET_MS }));
      await write(db, [...past, { atMs: NOW - (blocks + 1) * BUCKET_MS, model: "rare" }]);
      const requests = room(db);
      let turns = 0;
      let isListed = false;
      const listing = requests.list(ADMIN, { everyone: true, model: "rare" }).finally(() => {
        isListed = true;
      });
      while (!isListed) {
        await nextTurn();
        turns++;
      }
      expect((await listing).records).toHaveLength(1);
      expect(turns).toBeGreaterThanOrEqual(10);
      await requests.close();
    }));
});
