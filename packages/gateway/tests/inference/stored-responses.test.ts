import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { ResponseStore } from "../../src/rooms/inference/responses/store.ts";
import type { Database } from "../../src/storage/contract.ts";

const uuid = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const AT = "2026-11-15T12:00:00.000Z";

const addUser = (db: Database, n: number) =>
  db.run(
    "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
    [uuid(n), `${n}@example.com`, "x", "x", false, AT],
  );

onEachDatabase("stored responses", (fresh) => {
  test("lead back to their first, for their owner alone; old and excess ones go", () =>
    withDatabase(fresh, async (db) => {
      await addUser(db, 1);
      await addUser(db, 2);
      const store = new ResponseStore(db);
      const add = (n: number, previous: number | null, created_at = AT) =>
        store.insert({
          id: uuid(n),
          user_id: uuid(1),
          previous_id: previous === null ? null : uuid(previous),
          conversation_id: null,
          messages: JSON.stringify([{ role: "user", content: `${n} \u0000` }]),
          created_at,
        });
      await add(10, null, "2026-01-01T00:00:00.000Z");
      await add(11, 10);
      await add(12, 11);
      await add(13, 11);
      const chain = async (n: number, limit = 100, user = 1) =>
        (await store.chain(uuid(user), uuid(n), limit)).map(({ id }) => id);
      expect(await chain(13)).toEqual([uuid(13), uuid(11), uuid(10)]);
      expect(await chain(12, 2)).toEqual([uuid(12), uuid(11)]);
      expect(await chain(13, 100, 2)).toEqual([]);
      expect(await store.removeOlderThan("2026-06-01T00:00:00.000Z", 10)).toBe(1);
      expect(await chain(13)).toEqual([uuid(13), uuid(11)]);
      for (let n = 100; n < 1_100; n++) await add(n, null);
      expect(await chain(13)).toEqual([]);
      expect(await chain(100)).toEqual([uuid(100)]);
    }));
});
