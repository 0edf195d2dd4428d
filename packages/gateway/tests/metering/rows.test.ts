import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import type { FinalUsage } from "../../src/rooms/metering/index.ts";
import { encodeEntry } from "../../src/rooms/metering/journal/codec.ts";
import { DAMAGED_FILE } from "../../src/rooms/metering/journal/journal.ts";
import { openStorage } from "../../src/storage/index.ts";
import { bootOn } from "../groups/support.ts";
import { journalEntry } from "../support/request-lines.ts";
import { centRequest, openBench, payer, person, spend } from "./support.ts";

onEachDatabase("usage rows", (fresh, kind) => {
  test("say exactly what each surface spent", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const bench = await openBench({ db, dataDir: options.dataDir, clock: new ManualClock() });
    const groupId = crypto.randomUUID();
    await bench.topup({ type: "group", id: groupId }, 500);
    const [key, groupKey, me] = [payer({ tier: "enterprise" }), payer({ groupId }), person()];
    const surfaces: { who: Payer; model: string; refId: string | null; usage: FinalUsage; row: object }[] = [
      {
        who: key,
        model: "gpt-4o-mini",
        refId: "job 7",
        usage: { backend: "gateway", promptTokens: 12, completionTokens: 30, estimated: false },
        row: { prompt_tokens: 12, completion_tokens: 30, total_tokens: 42, cost: 0.0000198, ref_id: "job 7" },
      },
      {
        who: key,
        model: "text-embedding-3-small",
        refId: null,
        usage: { backend: "gateway", promptTokens: 1_000_000, completionTokens: 0, estimated: false },
        row: { total_tokens: 1_000_000, cost: 0.02, ref_id: null },
      },
      {
        who: me,
        model: "claude-sonnet-5",
        refId: null,
        usage: { backend: "rpc", promptTokens: 9, completionTokens: 1, estimated: true },
        row: { api_key_id: `jwt-${me.userId}`, key_id: null, project: null, backend: "rpc", cost: 0.000028 },
      },
      {
        who: me,
        model: "qwen-omni-realtime",
        refId: "call-1",
        usage: { backend: "realtime", promptTokens: 0, completionTokens: 0, estimated: false },
        row: { backend: "realtime", total_tokens: 0, cost: null, ref_id: "call-1" },
      },
      {
        who: groupKey,
        model: "video-model",
        refId: null,
        usage: {
          backend: "cloud-video",
          promptTokens: 0,
          completionTokens: 0,
          estimated: false,
          costUsd: 0.35,
        },
        row: { backend: "cloud-video", total_tokens: 0, cost: 0.35, points: 35, account_type: "group" },
      },
      {
        who: key,
        model: `${"m".repeat(200)}\u0000`,
        refId: "r".repeat(100),
        usage: { backend: "b\u0000ackend", promptTokens: Number.NaN, completionTokens: -3, estimated: true },
        row: {
          model: "m".repeat(128),
          ref_id: "r".repeat(64),
          backend: "backend",
          total_tokens: 0,
          cost: null,
        },
      },
    ];
    try {
      for (const { who, model, refId, usage, row } of surfaces) {
        const requestId = Bun.randomUUIDv7();
        const bound =
          usage.costUsd === undefined
            ? { promptTokens: 1, outputTokensMax: 1, outputTokensMin: 1 }
            : { costUsd: usage.costUsd };
        const admission = await bench.metering.admit({ requestId, payer: who, model, bound, refId });
        admission.settle(usage);
        expect(await bench.metering.flush(10_000)).toBe(true);
        const found = await db.get<Record<string, unknown>>("SELECT * FROM usage_records WHERE id = $1", [
          requestId,
        ]);
        expect({ ...found, estimated: Boolean(found!.estimated) }).toMatchObject({
          id: requestId,
          user_id: who.userId,
          key_id: who.keyId,
          project: who.project,
          api_key_id: who.attribution,
          model,
          backend: usage.backend,
          points: null,
          account_type: null,
          created_at: "2026-11-15T12:00:00.000Z",
          estimated: usage.estimated,
          ...row,
        });
      }
    } finally {
      await bench.close();
      await db.close();
      await drop();
    }
  });

  test("what the database refuses, or what cannot be, is set aside and holds nothing up", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const clock = new ManualClock();
    const impossible = [journalEntry({ atMs: 9e15 }), journalEntry({ costNanoUsd: 0.5 })];
    const left = join(options.dataDir, "journal", `usage-${crypto.randomUUID()}-000001.jsonl`);
    mkdirSync(join(options.dataDir, "journal"), { recursive: true });
    writeFileSync(left, impossible.map(encodeEntry).join(""));
    const bench = await openBench({ db, dataDir: options.dataDir, clock });
    try {
      const who = payer({ tier: "enterprise" });
      const good = [await spend(bench, who), await spend(bench, who)];
      const bad = { ...centRequest({ ...who, attribution: "x".repeat(65) }), refId: null };
      (await bench.metering.admit(bad)).settle({
        backend: "gateway",
        promptTokens: 1,
        completionTokens: 1,
        estimated: false,
      });
      good.push(await spend(bench, who));
      let drained = false;
      bench.metering.flush(3_600_000).then((done) => {
        drained = done;
      });
      // Each failed attempt is followed by a pause.
      while (!drained) {
        await new Promise((resolve) => setTimeout(resolve, 2));
        clock.advance(1_000);
      }
      expect((await bench.rows()).map(({ id }) => id)).toEqual(good);
      const aside = await Bun.file(join(options.dataDir, "journal", DAMAGED_FILE)).text();
      for (const { requestId } of [bad, ...impossible]) expect(aside).toContain(requestId);
    } finally {
      await bench.close();
      await db.close();
      await drop();
    }
  });

  test("/readyz and /metrics show what waits for the database", async () => {
    const gateway = await bootOn(kind);
    try {
      const { metering } = gateway.app.rooms;
      const usage: FinalUsage = {
        backend: "gateway",
        promptTokens: 1,
        completionTokens: 1,
        estimated: false,
      };
      metering.record({ requestId: Bun.randomUUIDv7(), payer: payer(), model: "m", refId: null }, usage);
      const body = (await (await fetch(`${gateway.url}/readyz`)).json()) as {
        usage_journal: { rows: number };
      };
      expect(body.usage_journal).toMatchObject({
        rows: expect.any(Number),
        bytes: expect.any(Number),
        stalled_seconds: 0,
      });
      const text = await (await fetch(`${gateway.url}/metrics`)).text();
      for (const name of ["rows", "bytes", "stalled_seconds"])
        expect(text).toContain(`gateway_usage_journal_${name} `);
    } finally {
      await gateway.stop();
    }
  });
});

test("what an earlier run journaled is in the database after the next start", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-replay-"));
  const entries = Array.from({ length: 3 }, () =>
    journalEntry({ costNanoUsd: null, hold: "none", atMs: Date.parse("2026-11-15T12:00:00.000Z") }),
  );
  mkdirSync(join(dataDir, "journal"));
  const file = join(dataDir, "journal", `usage-${crypto.randomUUID()}-000001.jsonl`);
  writeFileSync(file, entries.map(encodeEntry).join(""));

  const gateway = await bootGateway({ dataDir });
  try {
    const { db } = gateway.app.rooms.usage.store;
    const rows = () =>
      db.all<{ id: string; created_at: string }>("SELECT id, created_at FROM usage_records ORDER BY id");
    while ((await rows()).length < entries.length) await Bun.sleep(10);
    expect(await rows()).toEqual(
      entries.map(({ requestId }) => ({ id: requestId, created_at: "2026-11-15T12:00:00.000Z" })),
    );
  } finally {
    await gateway.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
});
