/** Records that were rows come through the migrations into blocks, of text and then of bytes. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabaseAt } from "@model-gateway/testing/databases.ts";
import { firstIdAt } from "../../src/rooms/requests/rows.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { ADMIN, listed, NOW, room } from "./room.ts";

const BEFORE_BLOCKS = 25;
const ROWS = 1_000;
const STEP_MS = 30;

onEachDatabase("the migrations of request records", (_, kind) => {
  test("keeps every record, with what it said", () =>
    withDatabaseAt(kind, BEFORE_BLOCKS, async (db) => {
      const facetId = 3_456_789_012_345_678;
      await db.run(
        "INSERT INTO request_facets VALUES ($1, '/v1/chat/completions', 'm', 'b', 502, 'bad_gateway')",
        [facetId],
      );
      await db.run("INSERT INTO request_askers (id, project) VALUES (7, 'p')");
      const firstMs = NOW - (ROWS - 1) * STEP_MS;
      await db.run("INSERT INTO request_marks VALUES ($1, $2, $3)", [crypto.randomUUID(), firstMs, NOW + 1]);
      const ids = Array.from({ length: ROWS }, (_, i) => firstIdAt(firstMs + i * STEP_MS));
      const detail = JSON.stringify({ message: 'it said "no", [twice]\u0000', ref: "r" });
      for (const [i, id] of ids.entries())
        await db.run("INSERT INTO request_records VALUES ($1, 7, $2, $3)", [
          id,
          facetId,
          `[2,1,null,${i},10,20,null,"only_backend"${i % 100 === 0 ? `,${detail}` : ""}]`,
        ]);
      await migrate(db);
      const requests = room(db, new ManualClock(NOW + 1_000));
      expect(await listed(requests)).toEqual(ids.toReversed());
      expect(await requests.get(ADMIN, ids[300]!)).toMatchObject({
        code: "bad_gateway",
        message: 'it said "no", [twice]\u0000',
        ref_id: "r",
        attempts: 2,
        duration_ms: 300,
        first_token_ms: null,
        completion_tokens: 20,
        reason: "only_backend",
        project: "p",
      });
      expect(await requests.get(ADMIN, ids[301]!)).toMatchObject({ message: null, duration_ms: 301 });
      await requests.close();
    }));
});
