/** What is kept may grow; what one call reads and answers may not. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, type TestDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { ConversationStore } from "../../src/rooms/conversations/store.ts";
import { Providers } from "../../src/rooms/providers/index.ts";
import { VideoStore } from "../../src/rooms/video/store.ts";

onEachDatabase("bounds", (fresh) => {
  async function withGateway(work: (gateway: TestGateway) => Promise<void>): Promise<void> {
    const database: TestDatabase = await fresh();
    const { dataDir, databaseUrl } = database.options;
    const gateway = await bootGateway({ dataDir, config: { dataDir, databaseUrl } });
    try {
      await work(gateway);
    } finally {
      await gateway.stop();
      await database.drop();
    }
  }

  test("a conversation is read back up to a number of messages and of bytes, the newest first", () =>
    withGateway(async ({ app, rpc, signIn }) => {
      const token = await signIn("ada");
      const { id } = await rpc("conversations.create", {}, token);
      const store = new ConversationStore(app.rooms.usage.store.db);
      const message = (content: string, images: string | null = null) => ({
        id: crypto.randomUUID(),
        role: "user",
        content,
        images,
        tool_calls: null,
        parts: null,
        tool_call_id: null,
        incomplete: null,
        created_at: "2026-11-15T12:00:00.000Z",
      });
      const images = JSON.stringify(["y".repeat(80)]);
      await store.append(id, [message("a"), message("b", images), message("c"), message("d")]);
      const read = async (limit: number, bytesMax: number) =>
        (await store.messages(id, { limit, bytesMax })).map(
          ({ content, images }) => content + (images ?? ""),
        );
      expect(await read(10, 1_000)).toEqual(["a", `b${images}`, "c", "d"]);
      expect(await read(2, 1_000)).toEqual(["c", "d"]);
      expect(await read(10, 86)).toEqual(["c", "d"]);
      // One that is too large by itself comes as its text, and hides no older one.
      expect(await read(10, 50)).toEqual(["a", "b", "c", "d"]);
      expect(await read(2, 0)).toEqual(["(too large to be read back)", "(too large to be read back)"]);
      const { messages } = await rpc("conversations.get", { conversation_id: id }, token);
      expect(messages).toHaveLength(4);
    }));

  test("keys.list leaves out old revoked keys before any that works", () =>
    withGateway(async ({ app, rpc, signIn }) => {
      const token = await signIn("ada");
      const { id: userId } = await rpc("auth.me", {}, token);
      const { id: oldest } = await rpc("keys.create", { name: "oldest" }, token);
      const { db } = app.rooms.usage.store;
      await db.transaction(async (tx) => {
        for (let i = 0; i < 1_005; i++) {
          const at = new Date(Date.UTC(2030, 0, 1) + i * 1000).toISOString();
          await tx.run(
            `INSERT INTO api_keys (id, user_id, name, project, key_hash, key_prefix, active, created_at)
             VALUES ($1, $2, $3, 'default', $5, 'abcdefgh', FALSE, $4)`,
            [crypto.randomUUID(), userId, `revoked ${i}`, at, `hash ${i}`],
          );
        }
      });
      const keys = await rpc("keys.list", {}, token);
      expect(keys).toHaveLength(1_000);
      expect(keys[0].name).toBe("revoked 1004");
      expect(keys.at(-1)).toMatchObject({ id: oldest, active: true });
    }));

  test("a list of video jobs does not read what was asked for", () =>
    withDatabase(fresh, async (db) => {
      const rows = await new VideoStore(db).listOf(crypto.randomUUID(), 100);
      expect(rows).toEqual([]);
      const read: string[] = [];
      const watched = {
        ...db,
        dialect: db.dialect,
        all: async <T>(sql: string) => {
          read.push(sql);
          return [] as T[];
        },
      };
      await new VideoStore(watched as typeof db).listOf("u", 100);
      expect(read.join()).not.toContain("request");
    }));
});

test("a task's extra has a limit of its own", async () => {
  const gateway = await bootGateway();
  try {
    const token = await gateway.signIn("ada");
    const extra = { blob: "x".repeat(70_000) };
    const { error } = await gateway.call("video.create", { model: "m", prompt: "p", extra }, token);
    expect(error).toMatchObject({ code: -32602, data: { fields: ["extra"] } });
  } finally {
    await gateway.stop();
  }
});

test("health is told from memory while the database is away", async () => {
  const clock = new ManualClock();
  let isAway = false;
  const db = {
    all: async () => {
      if (isAway) throw new Error("the database is away");
      return [{ id: "mine", name: "Mine", description: "", website_domain: "" }];
    },
  };
  const providers = new Providers(db as never, clock);
  const known = await providers.count();
  isAway = true;
  expect(await providers.count()).toBe(known);
});
