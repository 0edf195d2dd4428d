import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { AgentStore } from "../../src/rooms/agents/store.ts";

onEachDatabase("registered nodes", (fresh) => {
  test("are kept, found by their token's hash, numbered at each connection, and removed", () =>
    withDatabase(fresh, async (db) => {
      const store = new AgentStore(db);
      const created_at = "2026-11-15T12:00:00.000Z";
      const later = "2026-11-15T12:00:30.500Z";
      for (const name of ["b", "a"])
        await store.insert({ id: `id-${name}`, name, version: "1", token_hash: `hash-${name}`, created_at });
      expect((await store.list()).map(({ name }) => name)).toEqual(["a", "b"]);
      expect(await store.byTokenHash("hash-a")).toEqual({ id: "id-a", name: "a" });
      expect(await store.byTokenHash("hash-c")).toBeNull();

      const connection = { version: "2", host: "10.0.0.1", now: created_at };
      expect(await store.claimEpoch("id-a", connection)).toBe(1);
      expect(await store.claimEpoch("id-a", connection)).toBe(2);
      expect(await store.claimEpoch("id-b", connection)).toBe(1);
      expect(await store.claimEpoch("id-c", connection)).toBeNull();
      await store.seen("id-a", later);
      expect(await store.get("id-a")).toEqual({
        id: "id-a",
        name: "a",
        version: "2",
        host: "10.0.0.1",
        created_at,
        last_seen_at: later,
      });
      const epochs = await Promise.all(Array.from({ length: 5 }, () => store.claimEpoch("id-a", connection)));
      expect(new Set(epochs).size).toBe(5);

      expect(await store.remove("id-a")).toBe(true);
      expect(await store.remove("id-a")).toBe(false);
      expect(await store.get("id-a")).toBeNull();
    }));
});
