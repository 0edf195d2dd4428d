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
      expect(await store.list()).toEqual([one, two]);
      await store.save(
        { ...one, url: "http://y", workflow: null, enabled: true },
        "2026-11-15T12:00:02.000Z",
      );
      expect((await store.list()).map(({ name, url }) => [name, url])).toEqual([
        ["one", "http://y"],
        ["two", "bridge://n/s"],
      ]);
      await store.remove("one");
      expect(await store.list()).toEqual([two]);
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
      await db.run("UPDATE backend_configs SET name = 'two'");
      expect((await storeWith("a secret").list())[0]!.apiKey).toBeNull();
      await db.run("UPDATE backend_configs SET api_key = 'sk-plain'");
      expect((await storeWith("a secret").list())[0]!.apiKey).toBe("sk-plain");
    }));
});
