/** Circuits of instances that serve as one: three failures in all, told at once, one test call in all. */
import { afterEach, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion, type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { company, registerBackend, sharings } from "../instances/support.ts";

const OPEN_MS = 30_000;
/** Within this time all have heard, when the machine lets them: the quickest of a few times counts. */
const TOLD_MS = 100;
const ATTEMPTS = 5;

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

describe.each(sharings)("three instances %s", (sharing) => {
  const open = async (backend: Record<string, unknown> = {}) => {
    let aheadMs = 0;
    const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
    const { boot, stop, line: openLine } = await company(sharing);
    cleanup.push(stop);
    /** To the last of them. */
    const line = await openLine();
    cleanup.push(() => line.close());
    const upstream = startUpstream();
    cleanup.push(() => upstream.stop());
    const all: TestGateway[] = [];
    for (let i = 0; i < 3; i++) {
      const gateway = await boot({ overrides: { clock }, ...(i === 2 && { line }) });
      all.push(gateway);
      cleanup.push(() => gateway.stop());
    }
    const token = await all[0]!.signIn("ada");
    await all[0]!.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
    const { key } = await all[0]!.rpc("keys.create", { name: "test" }, token);
    await registerBackend(all[0]!, { name: "up", type: "external", url: upstream.url, ...backend });
    const entry = async (gateway: TestGateway) => {
      const answer = await fetch(`${gateway.url}/api/admin/backends`, {
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
      const { backends } = (await answer.json()) as {
        // biome-ignore lint/suspicious/noExplicitAny: tests look into reports freely
        backends: { health: any[] };
      };
      return backends.health[0];
    };
    for (const gateway of all)
      await until("it is healthy", async () => (await entry(gateway))?.state === "Healthy");
    const chat = async (gateway: TestGateway, sign: Record<string, string> = {}) => {
      const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...sign },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }),
      });
      await answer.text();
      return answer.status;
    };
    const states = async () =>
      (await Promise.all(all.map(entry))).map(({ circuit }) => circuit.state as string);
    const skip = (ms: number) => {
      aheadMs += ms;
    };
    return { all, line, upstream, chat, states, skip, boot, entry, token };
  };
  const asked = ({ requests }: FakeUpstream) => requests.length;

  test("a backend that is registered again starts anew on all of them, and a key that one was refused is shown by all", async () => {
    const { all, upstream, chat, states, boot, token } = await open();
    upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
    for (let i = 0; i < 3; i++) await chat(all[0]!);
    await until("all have heard", async () => (await states()).every((state) => state === "open"));
    await registerBackend(all[1]!, { name: "up", type: "external", url: upstream.url });
    await until("it is closed", async () => (await states()).every((state) => state === "closed"));

    const api_key = "sk-first-1111, sk-second-2222";
    await registerBackend(all[1]!, { name: "up", type: "external", url: upstream.url, api_key });
    upstream.answer((request, reply) =>
      request.headers.authorization === "Bearer sk-first-1111"
        ? reply.json({ error: "revoked" }, 401)
        : reply.json(completion("well")),
    );
    const refused = async (gateway: TestGateway) =>
      (await gateway.rpc("backends.list", {}, token)).backends[0].refused_keys[0]?.ends_with;
    await until("a key was refused", async () => {
      await chat(all[0]!);
      return (await refused(all[0]!)) === "1111";
    });
    for (const gateway of all) await until("all have heard", async () => (await refused(gateway)) === "1111");
    const before = asked(upstream);
    for (let i = 0; i < 4; i++) expect(await chat(all[2]!)).toBe(200);
    expect(asked(upstream)).toBe(before + 4);
    const late = await boot();
    cleanup.push(() => late.stop());
    await until("a new instance has heard", async () => (await refused(late)) === "1111");
  });

  test("what one has seen of a backend all know, and a session goes to the same one everywhere", async () => {
    const { all, upstream, chat, token } = await open();
    const upstreams = [upstream, startUpstream(), startUpstream()];
    for (const [i, { url, stop }] of upstreams.entries()) {
      cleanup.push(stop);
      if (i > 0) await all[i]!.rpc("backends.add", { type: "external", name: `more-${i}`, url }, token);
    }
    await all[2]!.rpc("backends.test", { name: "up" }, token);
    for (const gateway of all)
      await until("all know what was seen, and are well", async () => {
        const { backends } = await gateway.rpc("backends.list", {}, token);
        return (
          backends.filter(
            ({ seen, state }: { seen: { dialects: string[] } | null; state: string }) =>
              state === "Healthy" && seen?.dialects.includes("chat"),
          ).length === 3
        );
      });
    const homes = new Set<number>();
    for (let i = 0; i < 12; i++) {
      const before = upstreams.map(asked);
      for (const gateway of all) expect(await chat(gateway, { "x-session-affinity": `s-${i}` })).toBe(200);
      const served = upstreams.map((each, at) => asked(each) - before[at]!);
      expect(served.toSorted()).toEqual([0, 0, 3]);
      homes.add(served.indexOf(3));
    }
    expect(homes.size).toBeGreaterThan(1);
  });

  test("three failures, wherever they were met, and one test call", async () => {
    const { all, upstream, chat, states, skip, boot, entry } = await open();
    const say = (state: string) => async () => (await states()).every((each) => each === state);
    upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
    for (const [i, gateway] of all.entries()) {
      expect(await chat(gateway)).toBe(502);
      await until("all have counted it", async () =>
        (await Promise.all(all.map(entry))).every(({ circuit }) => circuit.consecutive_failures === i + 1),
      );
    }
    expect(await states()).toEqual(["open", "open", "open"]);
    for (const gateway of all) expect(await chat(gateway)).toBe(500);
    expect(asked(upstream)).toBe(3);

    const late = await boot();
    cleanup.push(() => late.stop());
    await until("a new instance has heard of it", async () => (await entry(late))?.circuit.state === "open");

    skip(OPEN_MS);
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    upstream.answer(async (_, reply) => {
      await held;
      await reply.json(completion("well"));
    });
    const answered: number[] = [];
    const statuses = [...all, ...all, ...all].map(async (each) => answered.push(await chat(each)));
    await until("the test call is out", () => asked(upstream) > 3);
    await until("all say so", say("half_open"));
    await until("the others have their answers", () => answered.length === 8);
    expect(asked(upstream)).toBe(4);
    release();
    await Promise.all(statuses);
    expect(answered).toEqual([...Array(8).fill(500), 200]);
    await until("all have heard that it is well", say("closed"));
    for (const gateway of all) expect(await chat(gateway)).toBe(200);
  });

  test("an opening, the half-open turn and a closing are told at once", async () => {
    const { all, upstream, chat, states, skip } = await open();
    const never = Number.POSITIVE_INFINITY;
    const leastMs = { open: never, half_open: never, closed: never };
    const slowestMs = () => Math.max(...Object.values(leastMs));
    const heard = async (wanted: keyof typeof leastMs) => {
      const fromMs = performance.now();
      await until(`all say ${wanted}`, async () => (await states()).every((state) => state === wanted));
      leastMs[wanted] = Math.min(leastMs[wanted], performance.now() - fromMs);
    };
    for (let i = 0; i < ATTEMPTS && slowestMs() > TOLD_MS; i++) {
      upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
      for (let failure = 0; failure < 3; failure++) expect(await chat(all[0]!)).toBe(502);
      await heard("open");
      skip(OPEN_MS);
      const { promise: held, resolve: release } = Promise.withResolvers<void>();
      const before = asked(upstream);
      upstream.answer(async (_, reply) => {
        await held;
        await reply.json(completion("well"));
      });
      const tested = chat(all[0]!);
      await until("the test call is out", () => asked(upstream) > before);
      await heard("half_open");
      release();
      expect(await tested).toBe(200);
      await heard("closed");
    }
    expect(slowestMs()).toBeLessThan(TOLD_MS);
  });

  test("one that was cut off learns what it missed, and tells what it met", async () => {
    const { all, line, upstream, chat, states, skip } = await open();
    const three = async (gateway: TestGateway) => {
      upstream.answer((_, reply) => reply.json({ error: "broken" }, 500));
      for (let i = 0; i < 3; i++) expect(await chat(gateway)).toBe(502);
    };
    const all3 = (state: string) =>
      until(`all say ${state}`, async () => (await states()).join() === Array(3).fill(state).join());
    await three(all[0]!);
    await all3("open");
    line.interrupt();
    skip(OPEN_MS);
    upstream.answer((_, reply) => reply.json(completion("well")));
    expect(await chat(all[0]!)).toBe(200);
    await until("the second has heard", async () => (await states()).join() === "closed,closed,half_open");
    line.resume();
    await all3("closed");

    line.interrupt();
    await three(all[2]!);
    expect(await states()).toEqual(["closed", "closed", "open"]);
    line.resume();
    await all3("open");
  });
});
