import { afterAll, beforeAll, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import type { FinalUsage } from "../../src/rooms/metering/index.ts";
import { bootOn, type GatewayOnDatabase } from "../groups/support.ts";
import { payer } from "../metering/support.ts";

interface Totals {
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost_usd: number;
}
interface Answer {
  totals: Totals;
  groups?: (Totals & { key: string | null })[];
  records?: Record<string, unknown>[];
  records_total?: number;
  limit?: number;
  offset?: number;
  error: { type: string; code: string; message: string };
}

/** at, model, backend, prompt and completion tokens, reference; gpt-4o-mini costs 0.15 and 0.6 a million. */
const SEEDED: [string, string, string, number, number, string | null][] = [
  ["2026-10-01T00:00:00.000Z", "gpt-4o-mini", "gateway", 1000, 0, "order-1"],
  ["2026-10-01T12:30:00.000Z", "gpt-4o-mini", "rpc", 2000, 1000, null],
  ["2026-10-01T23:59:59.999Z", "llama-own", "gateway", 5000, 0, "order-2"],
  ["2026-10-02T00:00:00.000Z", "gpt-4o-mini", "gateway", 100, 50, null],
  ["2026-10-03T08:00:00.000Z", "llama-own", "realtime", 0, 0, "order-1"],
  ["2026-10-03T08:00:00.000Z", "gpt-4o-mini", "gateway", 1_000_000, 0, null],
];

onEachDatabase("the usage query", (_, kind) => {
  let gateway: GatewayOnDatabase;
  const clock = new ManualClock();
  const ids: string[] = [];

  beforeAll(async () => {
    gateway = await bootOn(kind, { clock });
    const who = payer();
    for (const [at, model, backend, promptTokens, completionTokens, refId] of SEEDED) {
      clock.nowMs = Date.parse(at);
      const requestId = Bun.randomUUIDv7();
      ids.push(requestId);
      const usage: FinalUsage = { backend, promptTokens, completionTokens, estimated: false };
      gateway.app.rooms.metering.record({ requestId, payer: who, model, refId }, usage);
    }
  });
  afterAll(() => gateway.stop());

  const post = (body: string, token = ADMIN_TOKEN) =>
    fetch(`${gateway.url}/api/admin/usage/query`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body,
    });
  const ask = async (body: unknown): Promise<Answer> => {
    const response = await post(JSON.stringify(body));
    expect(response.status).toBe(200);
    return response.json() as Promise<Answer>;
  };
  const requests = async (body: unknown) => (await ask(body)).totals.requests;

  test("totals always, nothing else unless asked for", async () => {
    const all = {
      totals: {
        requests: 6,
        prompt_tokens: 1_008_100,
        completion_tokens: 1050,
        total_tokens: 1_009_150,
        cost_usd: 0.151095,
      },
    };
    expect(await ask({})).toEqual(all as Answer);
    expect(await (await post("")).json()).toEqual(all);
  });

  test("a date as since begins with that day, as until it covers it whole", async () => {
    expect(await requests({ since: "2026-10-02" })).toBe(3);
    expect(await requests({ until: "2026-10-01" })).toBe(3);
    expect(await requests({ since: "2026-10-01", until: "2026-10-02" })).toBe(4);
    expect(await requests({ since: "2026-10-04" })).toBe(0);
    expect(await requests({ since: "2026-10-03", until: "2026-10-01" })).toBe(0);
  });

  test("a timestamp is an inclusive since and an exclusive until, in any offset", async () => {
    expect(await requests({ since: "2026-10-01T12:30:00Z" })).toBe(5);
    expect(await requests({ since: "2026-10-01T12:30:00.001Z" })).toBe(4);
    expect(await requests({ until: "2026-10-01T12:30:00Z" })).toBe(1);
    expect(await requests({ until: "2026-10-01T12:30:00.0001Z" })).toBe(2);
    expect(await requests({ since: "2026-10-01T14:30:00+02:00", until: "2026-10-01T23:59:59.999Z" })).toBe(1);
    expect(await requests({ since: "2026-10-01T12:30:00Z", until: "2026-10-03T08:00:00Z" })).toBe(3);
    expect(await requests({ since: "2026-10-01T23:59:59.999Z", until: "2026-10-02T00:00:00Z" })).toBe(1);
  });

  test("references are trimmed, and blank ones mean all rows", async () => {
    expect(await requests({ ref_ids: ["  order-1 "] })).toBe(2);
    expect(await requests({ ref_ids: ["order-1", "order-2", "order-3"] })).toBe(3);
    expect(await requests({ ref_ids: ["order-2", "  "], since: "2026-10-01T01:00:00Z" })).toBe(1);
    for (const ref_ids of [[], ["", "  "], null]) expect(await requests({ ref_ids })).toBe(6);
    expect(await requests({ ref_ids: ["nobody"] })).toBe(0);
  });

  test("groups by model, most tokens first", async () => {
    const { groups } = await ask({ group_by: "model" });
    expect(groups).toEqual([
      {
        key: "gpt-4o-mini",
        requests: 4,
        prompt_tokens: 1_003_100,
        completion_tokens: 1050,
        total_tokens: 1_004_150,
        cost_usd: 0.151095,
      },
      {
        key: "llama-own",
        requests: 2,
        prompt_tokens: 5000,
        completion_tokens: 0,
        total_tokens: 5000,
        cost_usd: 0,
      },
    ]);
  });

  test("groups by backend, day and reference", async () => {
    const keys = async (body: unknown) => (await ask(body)).groups!.map(({ key, requests: n }) => [key, n]);
    expect(await keys({ group_by: "backend" })).toEqual([
      ["gateway", 4],
      ["rpc", 1],
      ["realtime", 1],
    ]);
    expect(await keys({ group_by: "day" })).toEqual([
      ["2026-10-03", 2],
      ["2026-10-01", 3],
      ["2026-10-02", 1],
    ]);
    expect(await keys({ group_by: "ref" })).toEqual([
      [null, 3],
      ["order-2", 1],
      ["order-1", 2],
    ]);
    expect(await keys({ group_by: "ref", ref_ids: ["order-1", "order-2"] })).toEqual([
      ["order-2", 1],
      ["order-1", 2],
    ]);
  });

  test("bounds within a day give what whole days give", async () => {
    for (const group_by of ["model", "backend", "day", "ref"]) {
      const whole = await ask({ group_by });
      const cut = await ask({ group_by, since: "2026-09-30T11:00:00Z", until: "2026-10-03T08:00:00.001Z" });
      expect(cut).toEqual(whole);
    }
  });

  test("ties are ordered by key, and no key comes last", async () => {
    const who = payer();
    const usage: FinalUsage = { backend: "ties", promptTokens: 7, completionTokens: 0, estimated: false };
    clock.nowMs = Date.parse("2026-08-01T00:00:00Z");
    for (const refId of ["b", null, "a", "ä", "B"]) {
      const requestId = Bun.randomUUIDv7();
      gateway.app.rooms.metering.record({ requestId, payer: who, model: "m", refId }, usage);
    }
    const { groups } = await ask({ group_by: "ref", until: "2026-08-31" });
    expect(groups!.map(({ key }) => key)).toEqual(["B", "a", "b", "ä", null]);
  });

  test("records come newest first, ties by id, a page at a time", async () => {
    const period = { since: "2026-10-01", until: "2026-10-31" };
    const { records, records_total, limit, offset } = await ask({ ...period, include_records: true });
    expect([records_total, limit, offset]).toEqual([6, 100, 0]);
    const newest = [ids[4], ids[5]].toSorted();
    expect(records!.map(({ id }) => id)).toEqual([...newest, ids[3], ids[2], ids[1], ids[0]]);
    expect(records!.at(-1)).toEqual({
      id: ids[0],
      ref_id: "order-1",
      api_key_id: "0a1b2c3d",
      model: "gpt-4o-mini",
      backend: "gateway",
      prompt_tokens: 1000,
      completion_tokens: 0,
      total_tokens: 1000,
      cost: 0.00015,
      created_at: "2026-10-01T00:00:00.000Z",
    });
    expect(records!.find(({ model }) => model === "llama-own")!.cost).toBeNull();

    const page = await ask({ ...period, include_records: true, limit: 2, offset: 3 });
    expect(page.records!.map(({ id }) => id)).toEqual([ids[2], ids[1]]);
    expect([page.records_total, page.limit, page.offset]).toEqual([6, 2, 3]);
    for (const [given, used] of [
      [0, 1],
      [-5, 1],
      [10_000, 500],
      [2 ** 63, 500],
    ]) {
      expect((await ask({ include_records: true, limit: given })).limit).toBe(used);
    }
    expect((await ask({ include_records: true, offset: 2 ** 63 })).records).toEqual([]);
    expect((await ask({ ref_ids: ["order-2"], include_records: true })).records).toHaveLength(1);
  });

  test("each bad field has its own error", async () => {
    const cases: [unknown, string][] = [
      [{ since: "yesterday" }, "bad_since"],
      [{ since: "2026-02-30" }, "bad_since"],
      [{ since: "2026-10-01T12:00:00" }, "bad_since"],
      [{ since: 20261001 }, "bad_since"],
      [{ until: "2026-13-01" }, "bad_until"],
      [{ until: "2026-10-01T25:00:00Z" }, "bad_until"],
      [{ group_by: "user" }, "bad_group_by"],
      [{ group_by: 1 }, "bad_group_by"],
      [{ ref_ids: "order-1" }, "missing_fields"],
      [{ limit: "many" }, "missing_fields"],
      [{ offset: 1.5 }, "missing_fields"],
      [{ include_records: "yes" }, "missing_fields"],
      [[], "missing_fields"],
    ];
    for (const [body, code] of cases) {
      const response = await post(JSON.stringify(body));
      expect(response.status).toBe(400);
      expect(((await response.json()) as Answer).error).toMatchObject({ type: "invalid_request", code });
    }
    expect((await post("{")).status).toBe(400);
  });

  test("series are the rows' sums by day and group, from rows or from rollups; pages follow each other", async () => {
    const token = await gateway.signIn("root");
    const range = { since: "2026-10-01", until: "2026-10-03", everyone: true };
    for (const by of ["model", "source", "ref", "key", "project", "user", "group"]) {
      const { totals, groups, others } = await gateway.rpc("usage.series", { ...range, by }, token);
      expect(totals).toMatchObject({ requests: 6, prompt_tokens: 1_008_100, completion_tokens: 1_050 });
      expect(totals.cost_usd).toBeCloseTo(0.151_095, 9);
      expect(others).toBeNull();
      const sum = groups.reduce((all: number, group: { requests: number }) => all + group.requests, 0);
      expect(sum).toBe(6);
    }
    const byRef = await gateway.rpc("usage.series", { ...range, by: "ref", model: "gpt-4o-mini" }, token);
    expect(byRef.groups).toMatchObject([
      {
        name: null,
        requests: 3,
        days: [{ day: "2026-10-01" }, { day: "2026-10-02" }, { day: "2026-10-03" }],
      },
      { name: "order-1", requests: 1, days: [{ day: "2026-10-01", prompt_tokens: 1000 }] },
    ]);
    const byKey = await gateway.rpc("usage.series", { ...range, by: "key", until: "2026-10-01" }, token);
    expect(byKey.totals).toMatchObject({ requests: 3, unpriced: 1 });

    // With a model the rows are read, without one their sums.
    for (const model of [undefined, "gpt-4o-mini"]) {
      const narrowed = { ...range, model };
      const byUser = await gateway.rpc("usage.series", { ...narrowed, by: "user" }, token);
      for (const { id, requests } of byUser.groups) {
        const theirs = { ...narrowed, by: "group", user_id: id };
        expect((await gateway.rpc("usage.series", theirs, token)).totals.requests).toBe(requests);
      }
    }
    for (const by of ["model", "backend", "ref", "key", "user"]) {
      const ofRef = await gateway.rpc("usage.series", { ...range, by, ref_id: "order-1" }, token);
      const byRefs = await gateway.rpc("usage.series", { ...range, by: "ref" }, token);
      const order = byRefs.groups.find(({ name }: { name: string }) => name === "order-1");
      expect(ofRef.totals.requests).toBe(order.requests);
      const all = await gateway.rpc("usage.series", { ...range, by: "backend" }, token);
      for (const { name, requests } of all.groups.filter(({ name }: { name: string }) => name)) {
        const ofBackend = await gateway.rpc("usage.series", { ...range, by, backend: name }, token);
        expect(ofBackend.totals.requests).toBe(requests);
      }
    }
    const nowhere = { ...range, by: "model", group_id: crypto.randomUUID() };
    expect((await gateway.rpc("usage.series", nowhere, token)).groups).toEqual([]);

    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await gateway.rpc("usage.records", { ...range, limit: 1, cursor }, token);
      seen.push(...page.records.map(({ id }: { id: string }) => id));
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
    expect(seen.toSorted()).toEqual(ids.toSorted());
    const newest = await gateway.rpc("usage.records", { ...range, model: "llama-own" }, token);
    expect(newest.records.map(({ id }: { id: string }) => id)).toEqual([ids[4], ids[2]]);
    expect(
      (await gateway.rpc("usage.series", { ...range, everyone: false, by: "model" }, token)).groups,
    ).toEqual([]);
    const other = await gateway.signIn("other");
    expect((await gateway.call("usage.series", { ...range, by: "model" }, other)).error.code).toBe(-32007);
    expect((await gateway.call("usage.records", { ...range, cursor: "x" }, token)).error.message).toContain(
      "cursor",
    );
  });

  test("needs the admin token", async () => {
    const token = await gateway.signIn("root");
    for (const bearer of ["wrong", token]) expect((await post("{}", bearer)).status).toBe(401);
  });
});
