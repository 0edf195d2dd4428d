import { describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { FAILED_TRIES_MAX } from "../../src/kernel/failed-tries.ts";
import { createLog } from "../../src/kernel/log.ts";
import { bootPair, canShare, company, registerBackend, sharings, startOwnRedis } from "./support.ts";

describe.each(sharings)("two instances %s", (sharing) => {
  test("a client event and a stop reach the instance that holds the voice session", async () => {
    const upstream = startRealtimeUpstream("dashscope");
    const { a, b, stop } = await bootPair({ sharing });
    try {
      const [token, stranger] = [await a.signIn("ada"), await a.signIn("eve")];
      await registerBackend(a, {
        type: "cloud-realtime",
        name: "voice",
        url: upstream.url,
        api_key: "sk",
        models: ["omni"],
      });
      await until("a model is served", () => a.app.rooms.routing.modelCount > 0);
      const { session_id } = await a.rpc("realtime.start", { model: "omni" }, token);
      const send = (bearer: string, type: string) =>
        b.call("realtime.event", { session_id, event: { type, audio: "AAAA" } }, bearer);
      expect((await send(token, "input_audio_buffer.append")).result).toEqual({ ok: true });
      await until("the upstream hears the audio", () =>
        upstream.received.some(({ type }) => type === "input_audio_buffer.append"),
      );
      expect((await send(stranger, "response.cancel")).error.message).toContain("not found");
      expect(await b.rpc("realtime.stop", { session_id }, stranger)).toEqual({ removed: false });
      expect(await b.rpc("realtime.stop", { session_id }, token)).toEqual({ removed: true });
      expect(a.app.rooms.realtime.sessionCount).toBe(0);
      // Nobody holds it any more: the question ends by its deadline.
      expect(await b.rpc("realtime.stop", { session_id }, token)).toEqual({ removed: false });
    } finally {
      await stop();
      upstream.stop();
    }
  });

  test("one that starts later knows whose channels the others have opened", async () => {
    const { options, drop } = await freshDatabase("postgres");
    const config = {
      databaseUrl: options.databaseUrl,
      redisUrl: process.env.TEST_REDIS_URL,
      jwtSecret: "a secret that both instances share, long",
    };
    const first = await bootGateway({ config });
    const [ada, eve] = [await first.signIn("ada"), await first.signIn("eve")];
    const { stream_id } = await first.rpc("requests.watch", {}, ada);
    const leave = new AbortController();
    const listen = async (gateway: TestGateway, session: string, token?: string) => {
      const heard = { status: 0, text: "" };
      const headers: Record<string, string> = token ? { authorization: `Bearer ${token}` } : {};
      const response = await fetch(`${gateway.url}/api/rpc/events?session=${session}`, {
        headers,
        signal: leave.signal,
      });
      heard.status = response.status;
      const decoder = new TextDecoder();
      const read = async () => {
        for await (const chunk of response.body!) heard.text += decoder.decode(chunk);
      };
      return { heard, over: read().catch(() => {}) };
    };
    const opened = await listen(first, stream_id);
    const claimed = await listen(first, "chosen");
    const push = (gateway: TestGateway, session: string, token: string, id: string) =>
      fetch(`${gateway.url}/api/rpc`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${token}`,
          "x-session-id": session,
        },
        body: JSON.stringify({ jsonrpc: "2.0", id, method: "system.status" }),
      });
    await push(first, "chosen", ada, "hers");
    await until("the claim is made", () => claimed.heard.text.includes("hers"));
    const later = await bootGateway({ config });
    try {
      // Before and after the first instance has answered.
      for (const round of [1, 2]) {
        const stranger = await listen(later, stream_id, eve);
        for (const session of [stream_id, "chosen"]) {
          await push(later, session, eve, `eve-${round}`);
          await push(later, session, ada, `ada-${round}`);
        }
        for (const { heard } of [opened, claimed]) {
          await until("the owner is heard", () => heard.text.includes(`ada-${round}`));
          expect(heard.text).not.toContain("eve");
        }
        await stranger.over;
        expect(stranger.heard.text).not.toContain("ada");
        if (round === 2) expect(stranger.heard.status).toBe(404);
      }
    } finally {
      leave.abort();
      await later.stop();
      await first.stop();
      await drop();
    }
  });

  test("a model route that one changes is the other's, too", async () => {
    const upstream = startUpstream({ models: ["m"] });
    const { a, b, stop } = await bootPair({ sharing });
    try {
      const token = await a.signIn("ada");
      await registerBackend(a, { type: "external", name: "first", url: upstream.url });
      await until("both serve the model", () =>
        [a, b].every(({ app }) => app.rooms.routing.router.routableModels().some(({ id }) => id === "m")),
      );
      const names = async () =>
        ((await b.rpc("routes.list", {}, token)) as { name: string }[]).map(({ name }) => name);
      const { key } = await a.rpc("keys.create", { name: "k" }, token);
      const ask = async () => {
        const answer = await fetch(`${b.url}/v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "fast", messages: [{ role: "user", content: "hi" }] }),
        });
        await answer.text();
        return answer.status;
      };
      expect(await ask()).toBe(404);
      await a.rpc("routes.set", { name: "fast", targets: [{ model: "m" }] }, token);
      await until("the other has the route", async () => (await ask()) === 200);
      expect(await names()).toEqual(["fast"]);
      await a.rpc("routes.delete", { name: "fast" }, token);
      await until("the other has forgotten it", async () => (await ask()) === 404);
    } finally {
      await stop();
      upstream.stop();
    }
  });
});

test.each(sharings)(
  "a key that an instance revokes while it alone is cut off is refused %s once it is back",
  async (sharing) => {
    const redis = sharing === "over Redis" ? await startOwnRedis() : null;
    const { boot, line: openLine, stop } = await company(sharing, redis?.url);
    const line = await openLine();
    const [a, b] = [await boot({ line }), await boot()];
    try {
      const token = await a.signIn("ada");
      const { id, key } = await a.rpc("keys.create", { name: "dead" }, token);
      const known = () => b.app.rooms.keys.authenticate(key);
      expect(await known()).toMatchObject({ keyId: id });
      line.interrupt();
      await until("it has noticed", () => !a.app.rooms.keys.options.bus.connected);
      await a.rpc("keys.revoke", { key_id: id }, token);
      expect(b.app.rooms.keys.options.bus.connected).toBe(true);
      line.resume();
      await until("it is back", () => a.app.rooms.keys.options.bus.connected);
      await until("the other refuses the key", async () => (await known()) === null);
    } finally {
      await a.stop();
      await b.stop();
      line.close();
      await stop();
      await redis?.kill();
    }
  },
);

// Not over the Redis that other tests share: they come from the same address.
test("wrong tokens count on all workers together", async () => {
  const { a, b, stop } = await bootPair({ sharing: "as workers" });
  try {
    const tried = async ({ url }: TestGateway) => {
      const headers = { authorization: `Bearer ${crypto.randomUUID()}` };
      const answer = await fetch(`${url}/api/admin/backends`, { headers });
      await answer.text();
      return answer.status;
    };
    for (let i = 0; i < FAILED_TRIES_MAX; i++) expect(await tried(a)).toBe(401);
    await until("the other has heard of all of them", async () => (await tried(b)) === 429);
  } finally {
    await stop();
  }
});

describe.if(canShare)("two instances over Redis", () => {
  test("different signing secrets are in the log of both", async () => {
    const { options, drop } = await freshDatabase("postgres");
    const lines: string[][] = [[], []];
    const boot = (index: number) =>
      bootGateway({
        config: {
          databaseUrl: options.databaseUrl,
          redisUrl: process.env.TEST_REDIS_URL!,
          jwtSecret: `the secret of instance ${index}, which is long enough`,
        },
        overrides: {
          log: createLog({ level: "error", format: "json", write: (line) => lines[index]!.push(line) }),
        },
      });
    const [a, b] = [await boot(0), await boot(1)];
    await until("both warn of the secret", () =>
      lines.every((log) => log.some((line) => line.includes("SERVICE_JWT_SECRET"))),
    );
    await a.stop();
    await b.stop();
    await drop();
  });

  test("each of them probes for itself, once a minute", async () => {
    const clock = new ManualClock(Date.now());
    const upstream = startUpstream({ models: ["m"] });
    const { a, b, stop } = await bootPair({ overrides: { clock } });
    try {
      await registerBackend(a, { type: "external_api", name: "up", url: `${upstream.url}/v1` });
      const entries = () => [a, b].map(({ app }) => app.rooms.routing.entries[0]);
      await until("both see the backend healthy", () =>
        entries().every((entry) => entry?.state === "Healthy"),
      );
      const atStart = upstream.probeCount;
      const probedAt = clock.now();
      clock.advance(60_000);
      await until("both have probed again", () => entries().every((entry) => entry!.probedAtMs! > probedAt));
      expect(upstream.probeCount - atStart).toBe(2);
      upstream.stop();
      clock.advance(60_000);
      await until("both see the backend down", () => entries().every((entry) => entry?.state !== "Healthy"));
    } finally {
      await stop();
      upstream.stop();
    }
  });
});

describe.if(canShare)("while Redis is away", () => {
  test("a key revoked on one instance is refused on the other within seconds, and requests go on", async () => {
    const redis = await startOwnRedis();
    const { a, b, stop } = await bootPair({ redisUrl: redis.url });
    try {
      const token = await a.signIn("ada");
      const [dead, alive] = [
        await a.rpc("keys.create", { name: "dead" }, token),
        await a.rpc("keys.create", { name: "alive" }, token),
      ];
      const known = (key: string) => b.app.rooms.keys.authenticate(key);
      for (const { key } of [dead, alive]) expect(await known(key)).not.toBeNull();
      await redis.kill();
      await a.rpc("keys.revoke", { key_id: dead.id }, token);
      await until("the revoked key is refused", async () => (await known(dead.key)) === null);
      expect(await known(alive.key)).toMatchObject({ keyId: alive.id });
      expect((await b.rpc("auth.me", {}, token)).email).toBe("ada@example.com");
      await redis.start();
      const { id } = alive;
      // What is read again is another object.
      const isCached = async () => {
        const first = await known(alive.key);
        return first === (await known(alive.key));
      };
      await until("the other key is cached", isCached);
      await a.rpc("keys.revoke", { key_id: id }, token);
      await until("it is refused as well", async () => (await known(alive.key)) === null);
    } finally {
      await stop();
      await redis.kill();
    }
  });
});
