import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { createSealer } from "../../src/rooms/routing/sealer.ts";
import { BackendStore } from "../../src/rooms/routing/store.ts";

onEachDatabase("backend configurations", (fresh) => {
  test("are saved, replaced in place and removed", () =>
    withDatabase(fresh, async (db) => {
      const store = new BackendStore(db, createSealer(Buffer.from("a secret")));
      const one = {
        name: "one",
        type: "vllm",
        url: "http://x",
        apiKey: "k",
        models: ["a", "b"],
        workflow: { nodes: [1] },
        enabled: true,
      };
      const two = {
        name: "two",
        type: "engine",
        url: "bridge://n/s",
        apiKey: null,
        models: [],
        capabilities: ["chat" as const],
        workflow: null,
        enabled: true,
      };
      await store.save(one, "2026-11-15T12:00:00.000Z");
      await store.save(two, "2026-11-15T12:00:01.000Z");
      expect(await store.list()).toEqual([
        { ...one, index: 0 },
        { ...two, index: 1 },
      ]);
      await store.save(
        { ...one, url: "http://y", workflow: null, enabled: true },
        "2026-11-15T12:00:02.000Z",
      );
      expect((await store.list()).map(({ name, url }) => [name, url])).toEqual([
        ["one", "http://y"],
        ["two", "bridge://n/s"],
      ]);
      expect(await store.remove(0)).toBe("one");
      expect(await store.list()).toEqual([{ ...two, index: 1 }]);
      expect(await store.remove(0)).toBeNull();
    }));

  test("have an index for good, which no other gets; the count begins again when none is left", () =>
    withDatabase(fresh, async (db) => {
      const store = new BackendStore(db, createSealer(Buffer.from("a secret")));
      const save = (name: string) =>
        store.save(
          { name, type: "vllm", url: "http://x", apiKey: null, models: [], workflow: null, enabled: true },
          "2026-11-15T12:00:00.000Z",
        );
      const names = Array.from({ length: 8 }, (_, at) => `b${at}`);
      const given = await Promise.all(names.map(save));
      expect(given.toSorted()).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      expect((await store.list()).map(({ name, index }) => [index, name])).toEqual(
        given.map((_, at) => [at, names[given.indexOf(at)]!]),
      );
      expect(await save("b3")).toBe(given[3]!);
      // The last one too: whoever was shown it must not remove its successor.
      for (const index of [7, 2]) await store.remove(index);
      expect(await save("new")).toBe(8);
      expect(await save(names[given.indexOf(7)]!)).toBe(9);
      expect(await store.indexOf("agent-tiny")).toBe(10);
      expect(await store.indexOf("agent-tiny")).toBe(10);
      expect(await store.remove(10)).toBeNull();
      for (const { index } of await store.list()) await store.remove(index);
      expect(await save("again")).toBe(11);
      await store.remove(11);
      await db.run("DELETE FROM backend_indexes WHERE name = 'agent-tiny'");
      await save("last");
      await store.remove((await store.list())[0]!.index);
      expect(await save("first")).toBe(0);
    }));

  test("hold keys sealed: for their own backend, with the secret that they were sealed with", () =>
    withDatabase(fresh, async (db) => {
      const backend = {
        name: "one",
        type: "vllm",
        url: "http://x",
        apiKey: "sk-1",
        models: [],
        workflow: null,
        enabled: true,
      };
      const unreadable: string[] = [];
      const storeWith = (secret: string) =>
        new BackendStore(db, createSealer(Buffer.from(secret)), (name) => unreadable.push(name));
      await storeWith("a secret").save(backend, "2026-11-15T12:00:00.000Z");
      const row = await db.get<{ api_key: string }>("SELECT api_key FROM backend_configs");
      expect(row!.api_key).toStartWith("sealed:v1:");
      expect((await storeWith("a secret").list())[0]!.apiKey).toBe("sk-1");
      expect((await storeWith("another").list())[0]!.apiKey).toBeNull();
      expect(unreadable).toEqual(["one"]);
      // Moved to another backend it opens no longer; what was stored before there was sealing still does.
      for (const table of ["backend_configs", "backend_indexes"])
        await db.run(`UPDATE ${table} SET name = 'two'`);
      expect((await storeWith("a secret").list())[0]!.apiKey).toBeNull();
      await db.run("UPDATE backend_configs SET api_key = 'sk-plain'");
      expect((await storeWith("a secret").list())[0]!.apiKey).toBe("sk-plain");
    }));
});
