import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { type BatchRow, BatchStore } from "../../src/rooms/batches/store.ts";
import { openStorage } from "../../src/storage/index.ts";

onEachDatabase("batches", (fresh) => {
  test("once a batch is cancelled, nobody who read it before sends a line of it", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    try {
      const store = new BatchStore(db);
      const [now, id] = ["2026-11-18T00:00:00.000Z", crypto.randomUUID()];
      const user_id = crypto.randomUUID();
      await db.run(
        "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, 'a', 'a', '', FALSE, $2)",
        [user_id, now],
      );
      const batch: BatchRow = {
        ...{ id, user_id, key_id: crypto.randomUUID(), payer: "{}" },
        ...{ endpoint: "/v1/chat/completions", input_file_id: crypto.randomUUID(), output_file_id: null },
        ...{ error_file_id: null, status: "in_progress", errors: null, metadata: null, total: 2 },
        ...{ completed: 0, failed: 0, cost_nano_usd: 0, bound_nano_usd: 2, bound_tokens: 2, created_at: now },
        ...{ due_at: now, cancelling_at: null, ended_at: null, expires_at: now },
      };
      const rest = { body: "{}", bound_nano_usd: 1, bound_tokens: 1 };
      await store.insert(batch, [
        { line: 1, custom_id: '"a"', ...rest },
        { line: 2, custom_id: '"b"', ...rest },
      ]);
      const asked = { running: [], after: 0, limit: 8 };
      expect(await store.pending(id, asked)).toHaveLength(2);
      expect(await store.mark(id, 1, null, "sent")).toBe(true);
      await store.cancel(id, now);
      expect(await store.pending(id, asked)).toEqual([]);
      expect(await store.mark(id, 2, null, "sent")).toBe(false);
      // What was sent and came to nothing is no longer marked.
      expect(await store.mark(id, 1, "sent", null)).toBe(true);
    } finally {
      await db.close();
      await drop();
    }
  });
});
