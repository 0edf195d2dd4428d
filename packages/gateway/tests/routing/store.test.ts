import { expect, test } from "bun:test";
import { BackendStore } from "../../src/rooms/routing/store.ts";
import { onEachDatabase, withDatabase } from "../support/databases.ts";

onEachDatabase("backend configurations", (fresh) => {
  test("are saved, replaced in place and removed", () =>
    withDatabase(fresh, async (db) => {
      const store = new BackendStore(db);
      const one = {
        name: "one",
        type: "vllm",
        url: "http://x",
        apiKey: "k",
        models: ["a", "b"],
        workflow: { nodes: [1] },
      };
      const two = {
        name: "two",
        type: "engine",
        url: "bridge://n/s",
        apiKey: null,
        models: [],
        capabilities: ["chat" as const],
        workflow: null,
      };
      await store.save(one, "2026-11-15T12:00:00.000Z");
      await store.save(two, "2026-11-15T12:00:01.000Z");
      expect(await store.list()).toEqual([one, two]);
      await store.save({ ...one, url: "http://y", workflow: null }, "2026-11-15T12:00:02.000Z");
      expect((await store.list()).map(({ name, url }) => [name, url])).toEqual([
        ["one", "http://y"],
        ["two", "bridge://n/s"],
      ]);
      await store.remove("one");
      expect(await store.list()).toEqual([two]);
    }));
});
