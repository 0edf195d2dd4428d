import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";

type Event = Record<string, unknown>;

/** A tenth of a point a token: a hundred points are a dollar. */
const MODEL = "dear-voice";
const USD_PER_MILLION = 1_000;
/** The same for texts; sound costs twice as much to hear and four times as much to say. */
const SOUND_MODEL = "sound-voice";
/** OpenAI's rates: what is said has 20 tokens a second, what is heard 10; both are 48,000 bytes a second. */
const BYTES_PER_SECOND = 48_000;
const audio = (seconds: number) => Buffer.alloc(seconds * BYTES_PER_SECOND, 7).toString("base64");

/** Over Redis every hold has to be asked for, so that events wait for it. */
const setups: [name: string, redisUrl: string | null][] = [["in one process", null]];
if (process.env.TEST_REDIS_URL) setups.push(["over Redis", process.env.TEST_REDIS_URL]);

describe.each(setups)("realtime %s", (_, redisUrl) => {
  let gateway: TestGateway;
  let upstream: RealtimeUpstream;
  let root: string;
  let group_id: string;
  const dir = mkdtempSync(join(tmpdir(), "realtime-metering-"));
  const pricingFile = join(dir, "prices.json");
  writeFileSync(
    pricingFile,
    JSON.stringify({
      prices: [
        { match: MODEL, input: USD_PER_MILLION, output: USD_PER_MILLION },
        {
          match: SOUND_MODEL,
          input: USD_PER_MILLION,
          output: USD_PER_MILLION,
          audio_input: 2 * USD_PER_MILLION,
          audio_output: 4 * USD_PER_MILLION,
        },
      ],
    }),
  );

  /** The room itself: its contract knows no holds. */
  const meteringOf = ({ app }: TestGateway) => app.rooms.metering as MeteringService;

  async function until(what: string, ready: () => unknown) {
    for (const deadline = Date.now() + 20_000; !(await ready()); await Bun.sleep(10))
      if (Date.now() > deadline) throw new Error(`not in time: ${what}`);
  }

  async function connect(to: TestGateway, from: RealtimeUpstream) {
    await fetch(`${to.url}/api/admin/backends`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({
        type: "cloud-realtime",
        name: "voice",
        url: from.url,
        models: [MODEL, SOUND_MODEL],
      }),
    });
    await until("the model is routable", () => to.app.rooms.routing.modelCount > 0);
  }

  beforeAll(async () => {
    gateway = await bootGateway({
      config: { pricingFile, redisUrl, trustedProxies: ["127.0.0.1"] },
      deployment: null,
    });
    upstream = startRealtimeUpstream("openai", { answers: false });
    root = await gateway.signIn("root");
    await connect(gateway, upstream);
    ({ id: group_id } = await gateway.rpc("group.create", { name: "g" }, root));
  });
  afterEach(async () => {
    gateway.app.rooms.realtime.close();
    upstream.received.length = 0;
    upstream.silentOn.clear();
    await until("the upstream is left", () => upstream.sessions() === 0);
    await until("all is given back", () => meteringOf(gateway).holdCount === 0);
  });
  afterAll(async () => {
    const { problems } = await verifyLedger(gateway.app.rooms.ledger.options.db);
    await gateway.stop();
    upstream.stop();
    rmSync(dir, { recursive: true, force: true });
    expect(problems).toEqual([]);
  });

  let people = 0;
  /** Registers someone from an address of their own: one address may register few. */
  async function register(name: string): Promise<string> {
    const response = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-forwarded-for": `10.0.0.${people}` },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "auth.register",
        params: { email: `${name}@example.com`, password: PASSWORD, name },
      }),
    });
    return (await response.json()).result.access_token;
  }

  /** Someone with a drained quota and this many points. */
  async function personWith(points: number): Promise<string> {
    const name = `person${people++}`;
    const person = await register(name);
    const { id: userId } = await gateway.rpc("auth.me", {}, person);
    const { metering } = gateway.app.rooms;
    const usage = { backend: "rpc", promptTokens: 0, completionTokens: 0, estimated: false, costUsd: 2 };
    const row = { requestId: crypto.randomUUID(), model: "m", refId: null };
    metering.record({ ...row, payer: await metering.payerOf({ userId }) }, usage);
    await until(
      "the quota is drained",
      async () => (await gateway.rpc("billing.plan", {}, person)).windows.signed_in.exceeded,
    );
    const user_id = `${name}@example.com`;
    await gateway.rpc("group.members.add", { group_id, email: user_id }, root);
    await gateway.rpc("group.credits.topup", { group_id, points }, root);
    await gateway.rpc("group.credits.allocate", { group_id, user_id, points }, root);
    return person;
  }
  const pointsOf = async (person: string): Promise<number> => {
    await meteringOf(gateway).flush(5_000);
    return (await gateway.rpc("ledger.self", {}, person)).balance;
  };
  const rowsOf = async (person: string): Promise<Event[]> =>
    (await gateway.rpc("usage.list", {}, person)).records.filter((row: Event) => row.backend === "realtime");
  const tokensOf = async (person: string) =>
    (await rowsOf(person)).map(({ prompt_tokens, completion_tokens }) => [prompt_tokens, completion_tokens]);

  interface Session {
    session_id: string;
    events: Event[];
    types(): unknown[];
    send(
      event: Event,
    ): Promise<{ result?: unknown; error?: { code: number; message: string; data?: Event } }>;
    stop(): Promise<unknown>;
    closed(): Event | undefined;
  }

  async function open(person: string, config: Event = {}, on = gateway, model = MODEL): Promise<Session> {
    const { session_id, stream_session } = await on.rpc("realtime.start", { model, config }, person);
    const stream = await fetch(`${on.url}/api/rpc/events?session=${stream_session}`);
    const events: Event[] = [];
    void (async () => {
      const decoder = new TextDecoder();
      let rest = "";
      for await (const chunk of stream.body as unknown as AsyncIterable<Uint8Array>) {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop()!;
        for (const line of lines)
          if (line.startsWith("data: ")) events.push(JSON.parse(line.slice(6)).params.event);
      }
    })().catch(() => {});
    await until("the session is there", () => events.length > 0);
    return {
      session_id,
      events,
      types: () => events.map(({ type }) => type),
      send: (event) => on.call("realtime.event", { session_id, event }, person),
      stop: () => on.rpc("realtime.stop", { session_id }, person),
      closed: () => events.find(({ type }) => type === "session.closed"),
    };
  }
  const created = (id: string) =>
    upstream.emit({ type: "response.created", response: { id, status: "in_progress" } });
  const says = (id: string, seconds: number) =>
    upstream.emit({ type: "response.output_audio.delta", response_id: id, delta: audio(seconds) });
  const done = (id: string, usage: unknown, status = "completed") =>
    upstream.emit({ type: "response.done", response: { id, status, output: [], usage } });
  const usage = (input_tokens: unknown, output_tokens: unknown) => ({ input_tokens, output_tokens });
  const heard = (session: Session, type: string, count = 1) =>
    until(`${count} of ${type}`, () => session.types().filter((name) => name === type).length >= count);
  const received = (type: string) => upstream.received.filter((event) => event.type === type);

  describe("every response is admitted before it is let through", () => {
    test("one that the client asks for: refused, not sent, and the session ends with the reason", async () => {
      const person = await personWith(40);
      const session = await open(person, { max_output_tokens: 256 });
      expect((await session.send({ type: "response.create" })).result).toEqual({ ok: true });
      await until("it is asked for", () => received("response.create").length === 1);
      created("r1");
      done("r1", usage(0, 200));
      await heard(session, "response.done");
      // 20 points are left, a response needs 25.6.
      await session.send({ type: "response.create" });
      await heard(session, "session.closed");
      expect(session.closed()).toMatchObject({
        code: "payment_required",
        reason: expect.stringContaining("points"),
      });
      expect(received("response.create")).toHaveLength(1);
      expect(await pointsOf(person)).toBe(20);
      expect(
        (await gateway.call("realtime.start", { model: MODEL, config: { max_output_tokens: 256 } }, person))
          .error.code,
      ).toBe(-32006);
    });

    test("one that the upstream begins after speech: cancelled there, none of it heard, the session ends; what it read is owed", async () => {
      const person = await personWith(40);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      done("r1", usage(0, 200));
      await heard(session, "response.done");
      created("r2");
      says("r2", 1);
      done("r2", usage(10, 20));
      await heard(session, "session.closed");
      expect(session.closed()).toMatchObject({ code: "payment_required" });
      await until("the upstream is told", () => received("response.cancel").length === 1);
      expect(session.types()).toEqual([
        "session.created",
        "session.updated",
        "response.created",
        "response.done",
        "session.closed",
      ]);
      // What it has said is owed, too, where the upstream told it before it hung up.
      expect((await tokensOf(person)).filter(([, said]) => said !== 20).sort()).toEqual([
        [0, 200],
        [200, 0],
      ]);
      expect(await pointsOf(person)).toBe(0);
    });

    test("whose admission takes long, left meanwhile: what the upstream has told by then is owed", async () => {
      const person = await register(`late${people++}`);
      const session = await open(person);
      const metering = meteringOf(gateway);
      const { promise, resolve } = Promise.withResolvers<void>();
      const admit = metering.admit.bind(metering);
      let asked = 0;
      metering.admit = async (options) => {
        asked++;
        await promise;
        return admit(options);
      };
      try {
        created("r1");
        done("r1", usage(10, 300));
        created("r2");
        done("r2", usage(310, 20));
        await until("it is to be admitted", () => asked === 1);
        // The rest has come as well by then.
        await Bun.sleep(200);
        await session.stop();
      } finally {
        resolve();
        metering.admit = admit;
      }
      const rows = [
        [10, 300],
        [310, 20],
      ];
      await until("both are on the books", async () => (await tokensOf(person)).length === rows.length);
      expect((await tokensOf(person)).sort()).toEqual(rows);
    });

    test("hours in one session: it ends when nothing is left, however the responses begin", async () => {
      const person = await personWith(100);
      const session = await open(person, { max_output_tokens: 100 });
      for (let i = 0; i < 50 && !session.closed(); i++) {
        const before = received("response.create").length;
        if (i % 2) {
          await session.send({ type: "response.create" });
          await until(
            "it is asked for",
            () => session.closed() || received("response.create").length > before,
          );
        }
        created(`r${i}`);
        says(`r${i}`, 4);
        done(`r${i}`, usage(20, 80));
        await until(
          "an end",
          () => session.closed() || session.types().filter((type) => type === "response.done").length > i,
        );
      }
      expect(session.closed()).toMatchObject({ code: "payment_required" });
      const points = await pointsOf(person);
      // Each took ten points, and the next one needs those and what it would read.
      expect(await rowsOf(person)).toHaveLength((100 - points) / 10);
      expect(points).toBeLessThan(20);
    });

    test("hours on the free tier: a dollar's worth, and what one response may go beyond it", async () => {
      const person = await register(`free${people++}`);
      const session = await open(person);
      for (let i = 0; i < 100 && !session.closed(); i++) {
        created(`r${i}`);
        says(`r${i}`, 4);
        done(`r${i}`, usage(20, 80));
        await until(
          "an end",
          () => session.closed() || session.types().filter((type) => type === "response.done").length > i,
        );
      }
      expect(session.closed()).toMatchObject({ code: "quota_exceeded" });
      await meteringOf(gateway).flush(5_000);
      const { usage: used } = await gateway.rpc("billing.plan", {}, person);
      expect(used.cost_usd).toBeGreaterThan(0.7);
      // Also what the upstream tells of the refused one before it hangs up.
      expect(used.cost_usd).toBeLessThanOrEqual(1.2);
      const again = await gateway.call(
        "realtime.start",
        { model: MODEL, config: { max_output_tokens: 1_000 } },
        person,
      );
      expect(again.error?.code ?? 0).toBe(used.cost_usd >= 1 ? -32006 : 0);
    });

    test("what was read and said before counts for the next one", async () => {
      const person = await personWith(130);
      const session = await open(person, { max_output_tokens: 10 });
      created("r1");
      done("r1", usage(400, 100));
      await heard(session, "response.done");
      // 80 points are left; the conversation alone costs 50 to read, and another 300 tokens of audio 30 more.
      for (let i = 0; i < 3; i++) await session.send({ type: "input_audio_buffer.append", audio: audio(10) });
      await session.send({ type: "response.create" });
      await heard(session, "session.closed");
      expect(await pointsOf(person)).toBe(80);
    });

    test("instructions and images count, too", async () => {
      const person = await personWith(150);
      const instructions = "Speak slowly and clearly. ".repeat(300);
      const refused = await gateway.call(
        "realtime.start",
        { model: MODEL, config: { instructions } },
        person,
      );
      expect(refused.error.code).toBe(-32006);
      const session = await open(person, { max_output_tokens: 10 });
      await session.send({ type: "input_image_buffer.append", image: "/9j/" });
      await session.send({ type: "input_image_buffer.append", image: "/9j/" });
      await session.send({ type: "response.create" });
      await heard(session, "session.closed");
    });
  });

  test.each([
    ["text", [{ type: "message", content: [{ type: "input_text", text: "word ".repeat(400) }] }], 400],
    // Two seconds and an image, which are not as many tokens as they have letters.
    ["audio", [{ type: "message", content: [{ type: "input_audio", audio: audio(2) }] }], 20],
    ["an image", [{ type: "message", content: [{ type: "input_image", image_url: audio(1) }] }], 1_445],
  ])("%s in the event itself counts as what it is", async (_, input, tokens) => {
    const person = await personWith(200);
    const session = await open(person, { max_output_tokens: 10 });
    const before = received("response.create").length;
    await session.send({ type: "response.create", response: { conversation: "none", input } });
    await until("it is asked for", () => received("response.create").length > before);
    await session.stop();
    const [[prompt] = []] = await tokensOf(person);
    expect(prompt).toBeGreaterThanOrEqual(tokens);
    expect(prompt).toBeLessThan(tokens * 1.3 + 30);
  });

  describe("a hold grows with what is heard", () => {
    test("and a long response is not cut while it can be paid", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 10 });
      created("r1");
      for (let i = 1; i <= 8; i++) {
        says("r1", 10);
        // One after the other: who reads too slowly is cut off.
        await heard(session, "response.output_audio.delta", i);
      }
      done("r1", usage(0, 1_600));
      await heard(session, "response.done");
      expect(session.closed()).toBeUndefined();
      expect(await pointsOf(person)).toBe(840);
    });

    test("and ends the session when there is no more; what the upstream wrote is owed", async () => {
      const person = await personWith(45);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      for (let i = 0; i < 4; i++) says("r1", 10);
      await heard(session, "session.closed");
      expect(session.closed()).toMatchObject({
        code: "payment_required",
        reason: expect.stringContaining("Nothing is left"),
      });
      expect(session.types().filter((type) => type === "response.output_audio.delta")).toHaveLength(2);
      await until("the upstream is told", () => received("response.cancel").length === 1);
      // The pieces that could not be paid were written all the same; of those, what has arrived by then counts.
      const [written] = await tokensOf(person);
      expect([
        [0, 600],
        [0, 800],
      ]).toContainEqual(written as number[]);
      expect(await pointsOf(person)).toBe(0);
    });

    test.each([
      ["text", { type: "response.output_text.delta", delta: "word ".repeat(400) }],
      ["arguments", { type: "response.function_call_arguments.delta", delta: "word ".repeat(400) }],
      ["an unknown member", { type: "response.thinking.delta", thoughts: [{ of: "word ".repeat(400) }] }],
      [
        "only the finished transcript",
        { type: "response.output_audio_transcript.done", transcript: "word ".repeat(400) },
      ],
      [
        "only the finished item",
        { type: "response.output_item.done", item: { content: [{ text: "word ".repeat(400) }] } },
      ],
    ])("counted in %s", async (_, event) => {
      const person = await personWith(30);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      upstream.emit({ response_id: "r1", ...event });
      await heard(session, "session.closed");
      expect(session.types()).not.toContain(event.type);
      expect(session.closed()).toMatchObject({ code: "payment_required" });
    });
  });

  test("sound costs what sound does, reported or not", async () => {
    const person = await personWith(1_000);
    const session = await open(person, { max_output_tokens: 256 }, gateway, SOUND_MODEL);
    const spoken = (audio_tokens: number) => ({ text_tokens: 10, audio_tokens });
    created("r1");
    done("r1", {
      ...usage(110, 60),
      input_token_details: spoken(100),
      output_token_details: spoken(50),
    });
    await heard(session, "response.done");
    // 20 of text, 100 heard at twice its price, 50 said at four times.
    expect(await pointsOf(person)).toBe(1_000 - 42);
    created("r2");
    says("r2", 2);
    await heard(session, "response.output_audio.delta");
    const before = await pointsOf(person);
    await session.stop();
    const [[, completion] = []] = await tokensOf(person);
    expect(before - (await pointsOf(person))).toBeGreaterThanOrEqual(
      Math.floor((Number(completion) * 4) / 10),
    );
  });

  describe("what was heard is paid, however a session ends before `response.done`", () => {
    const config = { instructions: "Be brief.", max_output_tokens: 256 };
    /** Two seconds of speech are heard of an answer to three. */
    async function midway(person: string, on = gateway): Promise<Session> {
      const session = await open(person, config, on);
      await session.send({ type: "input_audio_buffer.append", audio: audio(3) });
      await session.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length > 0);
      created("r1");
      says("r1", 2);
      upstream.emit({
        type: "response.output_audio_transcript.delta",
        response_id: "r1",
        delta: "I am well, thank you",
      });
      await heard(session, "response.output_audio_transcript.delta");
      return session;
    }
    const expected = async (person: string) => {
      const [[prompt, completion] = [], ...more] = await tokensOf(person);
      expect(more).toEqual([]);
      // Thirty tokens of audio and the settings; forty of audio and the words of it.
      expect(prompt).toBeGreaterThanOrEqual(30);
      expect(prompt).toBeLessThan(60);
      expect(completion).toBeGreaterThanOrEqual(44);
      // No more than is held, though the fake writes a thousand tokens a second.
      expect(completion).toBeLessThanOrEqual(256);
      expect(await pointsOf(person)).toBeLessThanOrEqual(93);
    };

    test("realtime.stop", async () => {
      const person = await personWith(100);
      const session = await midway(person);
      expect(await session.stop()).toEqual({ removed: true });
      await expected(person);
    });
    test("session.stop", async () => {
      const person = await personWith(100);
      await (await midway(person)).send({ type: "session.stop" });
      await expected(person);
    });
    test("the upstream hangs up", async () => {
      const person = await personWith(100);
      const session = await midway(person);
      upstream.closeAll(1011, "restarting");
      await heard(session, "session.closed");
      expect(session.closed()).toEqual({ type: "session.closed", reason: "restarting" });
      await expected(person);
    });
    test("the upstream talks rubbish", async () => {
      const person = await personWith(100);
      const session = await midway(person);
      upstream.sendRaw("not json");
      await heard(session, "session.closed");
      await expected(person);
    });
    test("the next response begins, and the cancelled one is never said to have ended", async () => {
      const person = await personWith(100);
      const session = await midway(person);
      await session.send({ type: "response.cancel" });
      created("r2");
      await heard(session, "response.created", 2);
      await expected(person);
    });
    test("the process is told to stop", async () => {
      const dataDir = mkdtempSync(join(tmpdir(), "realtime-shutdown-"));
      const boot = () => bootGateway({ config: { pricingFile, redisUrl }, dataDir });
      const before = await boot();
      const ada = await before.signIn("ada");
      await connect(before, upstream);
      await midway(ada, before);
      await before.stop();
      const after = await boot();
      const { records } = await after.rpc("usage.list", {}, await after.signIn("ada"));
      expect(records).toHaveLength(1);
      expect(records[0].completion_tokens).toBeGreaterThanOrEqual(44);
      await after.stop();
      rmSync(dataDir, { recursive: true, force: true });
    });
    test("the client is silent for too long", async () => {
      const clock = new ManualClock();
      const quiet = await bootGateway({ config: { pricingFile, redisUrl }, overrides: { clock } });
      const ada = await quiet.signIn("ada");
      await connect(quiet, upstream);
      const session = await midway(ada, quiet);
      clock.advance(11 * 60_000);
      await heard(session, "session.closed");
      clock.advance(1_000);
      await until("its row", async () => {
        clock.advance(1_000);
        return (await quiet.rpc("usage.list", {}, await quiet.signIn("ada"))).records.length === 1;
      });
      await quiet.stop();
    });

    test("a response's own audio format is what its audio is counted by", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { ...config, max_output_tokens: 4_096 });
      const response = { audio: { output: { format: { type: "audio/pcmu" } } } };
      await session.send({ type: "response.create", response });
      await until("it is asked for", () => received("response.create").length > 0);
      created("r1");
      // A second of PCM are six of telephone.
      says("r1", 10);
      await heard(session, "response.output_audio.delta");
      await session.stop();
      const [[, completion] = []] = await tokensOf(person);
      expect(completion).toBeGreaterThanOrEqual(60 * 20);
    });

    test("left before a word of the answer: the prompt; but nothing when the upstream leaves without a word", async () => {
      const [left, deserted] = [await personWith(100), await personWith(100)];
      const ask = async (person: string) => {
        const session = await open(person, config);
        await session.send({ type: "input_audio_buffer.append", audio: audio(3) });
        const before = received("response.create").length;
        await session.send({ type: "response.create" });
        await until("it is asked for", () => received("response.create").length > before);
        return session;
      };
      await (await ask(left)).stop();
      const [[prompt, completion] = []] = await tokensOf(left);
      expect(prompt).toBeGreaterThanOrEqual(30);
      expect(completion).toBeLessThanOrEqual(256);
      await until("the upstream is left", () => upstream.sessions() === 0);

      const session = await ask(deserted);
      created("r1");
      await heard(session, "response.created");
      upstream.closeAll(1011, "oops");
      await heard(session, "session.closed");
      expect(await tokensOf(deserted)).toEqual([]);
      expect(await pointsOf(deserted)).toBe(100);
    });

    test("asked for and refused by the upstream: nothing", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      await session.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length === 1);
      upstream.emit({
        type: "error",
        error: { message: "busy", event_id: received("response.create")[0]!.event_id },
      });
      await heard(session, "error");
      await session.stop();
      expect(await tokensOf(person)).toEqual([]);
    });

    test.each([
      ["names no event: none of those asked for is refused", { event_id: null }, 2],
      ["of an API that names none, as DashScope's: it may be about another event, so both are owed", {}, 2],
      ["names an event by the client's own id: it may be another one's", { event_id: "mine" }, 2],
    ])("an error that %s", async (_, named, owed) => {
      const person = await personWith(200);
      const session = await open(person, config);
      for (let asked = 0; asked < 2; asked++)
        await session.send({ type: "response.create", event_id: "mine" });
      await until("both are asked for", () => received("response.create").length === 2);
      upstream.emit({ type: "error", error: { message: "odd", ...named } });
      await heard(session, "error");
      await session.stop();
      expect(await tokensOf(person)).toHaveLength(owed);
    });

    test("a refused one is named to the client as the client named it", async () => {
      const session = await open(await personWith(100), config);
      await session.send({ type: "response.create", event_id: "mine" });
      await until("it is asked for", () => received("response.create").length === 1);
      const { event_id } = received("response.create")[0]!;
      expect(event_id).not.toBe("mine");
      upstream.emit({ type: "error", error: { message: "busy", event_id } });
      await heard(session, "error");
      expect(session.events.find(({ type }) => type === "error")!.error).toMatchObject({ event_id: "mine" });
    });
  });

  describe("what an upstream reports", () => {
    test.each([
      ["absurd", usage(1e308, 1e308)],
      ["beyond ten million", usage(10_000_001, 10_000_001)],
      ["negative", usage(-5, -5)],
      ["fractions", usage(1.5, 2.5)],
      ["texts", usage("100", "100")],
      ["nothing", null],
      ["no object", 7],
    ])("%s: the count stands", async (_, report) => {
      const person = await personWith(100);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      says("r1", 5);
      done("r1", report);
      await heard(session, "response.done");
      expect(await tokensOf(person)).toEqual([[0, 100]]);
      expect(await pointsOf(person)).toBe(90);
    });

    test("is told to the operator where it cannot be", async () => {
      const session = await open(await personWith(100), { max_output_tokens: 256 });
      created("r1");
      done("r1", usage(1e308, 5));
      await heard(session, "response.done");
      const response = await fetch(`${gateway.url}/api/admin/backends`, {
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
      const [health] = (await response.json()).backends.health;
      expect(health.implausible_usage).toMatchObject({
        problem: expect.stringContaining("impossible usage figures"),
      });
    });

    test("of a finished response it is believed, be it more or less than what was heard", async () => {
      const person = await personWith(100);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      says("r1", 5);
      done("r1", usage(7, 11));
      created("r2");
      done("r2", usage(30, 70));
      await heard(session, "response.done", 2);
      expect((await tokensOf(person)).sort()).toEqual([
        [30, 70],
        [7, 11],
      ]);
    });

    test.each(["cancelled", "incomplete", "failed"])(
      "of a %s one the input is believed, and of the output the larger counts",
      async (status) => {
        const person = await personWith(100);
        const session = await open(person, { max_output_tokens: 256 });
        created("r1");
        says("r1", 5);
        done("r1", usage(50, 1), status);
        await session.send({ type: "conversation.item.delete", item_id: "i" });
        created("r2");
        says("r2", 1);
        done("r2", usage(10, 20), status);
        await heard(session, "response.done", 2);
        expect((await tokensOf(person)).sort()).toEqual([
          [10, 20],
          [50, 100],
        ]);
      },
    );

    test("one that failed without a word costs nothing", async () => {
      const person = await personWith(100);
      const session = await open(person, { instructions: "Be brief.", max_output_tokens: 256 });
      created("r1");
      done("r1", null, "failed");
      await heard(session, "response.done");
      expect(await tokensOf(person)).toEqual([]);
    });
  });

  describe("transcripts without a response", () => {
    const committed = async (session: Session, times = 1) => {
      for (let i = 0; i < times; i++) {
        await session.send({ type: "input_audio_buffer.append", audio: audio(10) });
        await session.send({ type: "input_audio_buffer.commit" });
      }
      await heard(session, "input_audio_buffer.committed", times);
    };
    const transcribed = (transcript: string, told?: Event) =>
      upstream.emit({
        type: "conversation.item.input_audio_transcription.completed",
        item_id: "i",
        transcript,
        ...(told && { usage: told }),
      });

    test("are paid for by what was transcribed", async () => {
      const person = await personWith(100);
      const session = await open(person, { max_output_tokens: 10 });
      await committed(session);
      transcribed("one two three four");
      await heard(session, "conversation.item.input_audio_transcription.completed");
      await session.stop();
      const [[prompt, completion] = []] = await tokensOf(person);
      expect(prompt).toBe(100);
      expect(completion).toBeGreaterThan(0);
    });
    test("end the session when nothing is left", async () => {
      const person = await personWith(30);
      const session = await open(person, { max_output_tokens: 10 });
      for (let i = 0; i < 4; i++) await session.send({ type: "input_audio_buffer.append", audio: audio(10) });
      await committed(session);
      transcribed("one two three four");
      await heard(session, "session.closed");
      expect(session.types()).not.toContain("conversation.item.input_audio_transcription.completed");
    });
    test.each([
      { input_audio_transcription: { model: "t" } },
      { audio: { input: { transcription: { model: "t" } } } },
    ])(
      "are paid for from the commit on, also by one who leaves before the transcript: %p",
      async (config) => {
        const person = await personWith(100);
        const session = await open(person, config);
        await committed(session);
        await session.stop();
        expect(await tokensOf(person)).toEqual([[100, 0]]);
      },
    );
    test("are billed beside the response that reads the same, also to one who leaves", async () => {
      const person = await personWith(100);
      const session = await open(person, {
        input_audio_transcription: { model: "t" },
        max_output_tokens: 10,
      });
      await committed(session);
      created("r1");
      says("r1", 1);
      await heard(session, "response.output_audio.delta");
      await session.stop();
      expect(await tokensOf(person)).toHaveLength(2);
    });
    test("cost nothing where none was asked for", async () => {
      const person = await personWith(100);
      const session = await open(person, { input_audio_transcription: null });
      await committed(session);
      await session.stop();
      expect(await tokensOf(person)).toEqual([]);
    });
    test("are billed beside a response, once for each item", async () => {
      const person = await personWith(100);
      const session = await open(person, { max_output_tokens: 10 });
      await committed(session);
      created("r1");
      const told = { type: "tokens", input_tokens: 105, output_tokens: 9 };
      transcribed("one two three four", told);
      transcribed("one two three four", told);
      done("r1", usage(110, 20));
      await heard(session, "response.done");
      transcribed("and again", told);
      await session.stop();
      expect((await tokensOf(person)).sort()).toEqual([
        [105, expect.any(Number)],
        [110, 20],
      ]);
    });
    test("cost as sound what was sound", async () => {
      const person = await personWith(1_000);
      const config = { input_audio_transcription: { model: "t" }, max_output_tokens: 10 };
      const session = await open(person, config, gateway, SOUND_MODEL);
      await committed(session);
      await session.stop();
      expect(await pointsOf(person)).toBe(1_000 - 20);
    });
  });

  describe("audio that is transcribed is owed from the client's own commit on", () => {
    const config = {
      input_audio_transcription: { model: "t" },
      turn_detection: { type: "server_vad", create_response: false },
      max_output_tokens: 10,
    };
    const APPEND = "input_audio_buffer.append";
    const COMMIT = "input_audio_buffer.commit";
    const CLEAR = "input_audio_buffer.clear";
    const append = async (session: Session, seconds: number) => {
      for (let rest = seconds; rest > 0; rest -= 10)
        await session.send({ type: APPEND, audio: audio(Math.min(rest, 10)) });
    };
    const reached = (type: string, count = 1) =>
      until(`${count} of ${type} there`, () => received(type).length >= count);
    const left = async (session: Session, person: string) => {
      await session.stop();
      return tokensOf(person);
    };
    /** Voice detection finds speech from one second to another. */
    const detected = (fromSeconds: number, toSeconds: number) => {
      upstream.emit({ type: "input_audio_buffer.speech_started", audio_start_ms: fromSeconds * 1_000 });
      upstream.emit({ type: "input_audio_buffer.speech_stopped", audio_end_ms: toSeconds * 1_000 });
      upstream.emit({ type: "input_audio_buffer.committed", item_id: `at ${fromSeconds}` });
    };

    test.each([config, { audio: { input: { transcription: { model: "t" } } } }])(
      "left before the upstream confirms it: %p",
      async (asked) => {
        upstream.silentOn.add(COMMIT);
        const person = await personWith(100);
        const session = await open(person, asked);
        await append(session, 10);
        await session.send({ type: COMMIT });
        await reached(COMMIT);
        expect(await left(session, person)).toEqual([[100, 0]]);
      },
    );
    test("their account is closed before the upstream confirms it", async () => {
      upstream.silentOn.add(COMMIT);
      const person = await personWith(100);
      const { id: user_id, email } = await gateway.rpc("auth.me", {}, person);
      const session = await open(person, config);
      await append(session, 10);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      await gateway.rpc("users.update", { user_id, disabled: true }, root);
      await until("the upstream is left", () => upstream.sessions() === 0);
      await gateway.rpc("users.update", { user_id, disabled: false }, root);
      const { access_token } = await gateway.rpc("auth.login", { email, password: PASSWORD });
      expect(await tokensOf(access_token)).toEqual([[100, 0]]);
    });
    test("what is appended after it is not", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 10);
      upstream.silentOn.add(COMMIT);
      await session.send({ type: COMMIT });
      await append(session, 20);
      upstream.emit({ type: "input_audio_buffer.committed", item_id: "i" });
      await heard(session, "input_audio_buffer.committed");
      expect(await left(session, person)).toEqual([[100, 0]]);
    });
    test("one that the upstream refuses costs nothing, is named as the client named it, and its audio stays", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 0.05);
      await session.send({ type: COMMIT, event_id: "mine" });
      await heard(session, "error");
      expect(session.events.find(({ type }) => type === "error")!.error).toMatchObject({ event_id: "mine" });
      expect(await left(session, person)).toEqual([]);

      const again = await open(person, config);
      await append(again, 0.05);
      await again.send({ type: COMMIT });
      await heard(again, "error");
      await append(again, 0.95);
      await again.send({ type: COMMIT });
      await heard(again, "input_audio_buffer.committed");
      // The second finds nothing.
      await again.send({ type: COMMIT });
      await heard(again, "error", 2);
      expect(await left(again, person)).toEqual([[10, 0]]);
    });
    test("one that cannot be paid is not sent, and the session ends", async () => {
      const person = await personWith(30);
      const session = await open(person, config);
      await append(session, 60);
      await session.send({ type: COMMIT });
      await heard(session, "session.closed");
      expect(session.closed()).toMatchObject({ code: "payment_required" });
      expect(received(COMMIT)).toEqual([]);
      expect(await tokensOf(person)).toEqual([]);
      expect(await pointsOf(person)).toBe(30);
    });
    test("nothing for one that the upstream had not confirmed when it hung up", async () => {
      upstream.silentOn.add(COMMIT);
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 10);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      upstream.closeAll(1011, "oops");
      await heard(session, "session.closed");
      expect(await tokensOf(person)).toEqual([]);
    });
    test("what was cleared is not, what was appended since is, whenever the upstream confirms it", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      upstream.silentOn.add(CLEAR);
      await append(session, 30);
      await session.send({ type: CLEAR });
      await append(session, 10);
      upstream.emit({ type: "input_audio_buffer.cleared" });
      upstream.emit({ type: "input_audio_buffer.cleared" });
      await heard(session, "input_audio_buffer.cleared", 2);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      expect(await left(session, person)).toEqual([[100, 0]]);
    });
    test("speech that was sent faster than it is spoken: each piece, and the silence between them not", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 60);
      detected(0, 20);
      detected(30, 60);
      await heard(session, "input_audio_buffer.committed", 2);
      expect(await left(session, person)).toEqual([[500, 0]]);
    });
    test("speech that was detected before the client's own commit, which is refused then", async () => {
      upstream.silentOn.add(COMMIT);
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 10);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      detected(0, 10);
      upstream.emit({ type: "error", error: { message: "empty", event_id: received(COMMIT)[0]!.event_id } });
      await heard(session, "error");
      expect(await left(session, person)).toEqual([[100, 0]]);
    });
    test("speech that nobody can pay is a debt", async () => {
      const person = await personWith(30);
      const session = await open(person, config);
      await append(session, 60);
      detected(0, 60);
      await heard(session, "session.closed");
      expect(await tokensOf(person)).toEqual([[600, 0]]);
      expect(await pointsOf(person)).toBe(0);
      expect(await gateway.rpc("ledger.self", {}, person)).toMatchObject({ debt: 30 });
      expect((await gateway.call("realtime.start", { model: MODEL }, person)).error.code).toBe(-32006);
    });
    test("transcripts that are asked for while the upstream still answers an earlier update", async () => {
      upstream.silentOn.add("session.update").add(COMMIT);
      const person = await personWith(100);
      const session = await open(person);
      const update = (settings: Event) => session.send({ type: "session.update", session: settings });
      await update({ instructions: "Be brief." });
      await update({ input_audio_transcription: { model: "t" }, input_audio_format: "g711_ulaw" });
      const none = { input_audio_transcription: null, input_audio_format: "pcm16" };
      upstream.emit({ type: "session.updated", session: none });
      await heard(session, "session.updated");
      await append(session, 1);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      // A second of PCM are six of telephone.
      expect(await left(session, person)).toEqual([[60, 0]]);
      // Once all are answered, the upstream's word counts.
      const cheaper = await open(person, config);
      await cheaper.send({ type: "session.update", session: none });
      upstream.emit({ type: "session.updated", session: none });
      upstream.emit({ type: "session.updated", session: none });
      await heard(cheaper, "session.updated", 2);
      await append(cheaper, 1);
      await cheaper.send({ type: COMMIT });
      await reached(COMMIT, 2);
      expect(await left(cheaper, person)).toHaveLength(1);
    });
    test.each([
      [{ type: "tokens", input_tokens: 140, output_tokens: 4 }, 140, 4],
      [{ type: "tokens", input_tokens: 140, output_tokens: -4 }, 140, 0],
      [{ type: "duration", seconds: 7 }, 70, 0],
      [{ type: "tokens", input_tokens: -5 }, 100, 0],
      [{ type: "duration", seconds: 1e308 }, 100, 0],
    ])("what the transcript took replaces the estimate: %p", async (told, tokens, said) => {
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 10);
      await session.send({ type: COMMIT });
      await heard(session, "input_audio_buffer.committed");
      const type = "conversation.item.input_audio_transcription.completed";
      upstream.emit({ type, item_id: "i", transcript: "", usage: told });
      await heard(session, type);
      expect(await left(session, person)).toEqual([[tokens, said]]);
    });
    test("what the transcriber is told each time, too", async () => {
      upstream.silentOn.add(COMMIT);
      const person = await personWith(100);
      const prompt = "word ".repeat(200);
      const session = await open(person, { ...config, input_audio_transcription: { model: "t", prompt } });
      await append(session, 1);
      await session.send({ type: COMMIT });
      await reached(COMMIT);
      const [[tokens] = []] = await left(session, person);
      expect(tokens).toBeGreaterThanOrEqual(210);
    });
    test("also beside a response that has not read it", async () => {
      const person = await personWith(100);
      const session = await open(person, config);
      await append(session, 10);
      await session.send({ type: COMMIT });
      await heard(session, "input_audio_buffer.committed");
      const input = [{ type: "message", role: "user", content: [{ type: "input_text", text: "Hi" }] }];
      await session.send({ type: "response.create", response: { conversation: "none", input } });
      await reached("response.create");
      created("r1");
      done("r1", usage(300, 5));
      await heard(session, "response.done");
      expect((await left(session, person)).sort()).toEqual([
        [100, 0],
        [300, 5],
      ]);
    });
  });

  describe("what was sent is owed, once", () => {
    test("a response that is told done again, and what is told of it later, is dropped", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 256 });
      created("r1");
      done("r1", usage(10, 20));
      done("r1", usage(10, 20));
      says("r1", 5);
      created("r2");
      await heard(session, "response.created", 2);
      expect(session.types().filter((type) => type === "response.done")).toHaveLength(1);
      expect(session.types()).not.toContain("response.output_audio.delta");
      done("r2", usage(1, 2));
      await heard(session, "response.done", 2);
      expect((await tokensOf(person)).sort()).toEqual([
        [1, 2],
        [10, 20],
      ]);
    });
    test("an id that begins another response is another response", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 256 });
      for (let i = 0; i < 2; i++) {
        created("r");
        done("r", usage(10, 20));
      }
      await heard(session, "response.done", 2);
      expect(await tokensOf(person)).toHaveLength(2);
    });
    test.each(["response.failed", "response.incomplete", "response.cancelled"])(
      "what `%s` tells of its usage, once",
      async (type) => {
        const person = await personWith(1_000);
        const session = await open(person, { max_output_tokens: 256 });
        created("r1");
        upstream.emit({ type, response: { id: "r1", usage: usage(30, 40) } });
        await heard(session, type);
        expect(await tokensOf(person)).toEqual([[30, 40]]);
        done("r1", usage(30, 40), "failed");
        created("r2");
        await heard(session, "response.created", 2);
        expect(session.types()).not.toContain("response.done");
      },
    );
    test("what a failed response has heard costs what sound does", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 256 }, gateway, SOUND_MODEL);
      created("r1");
      done("r1", { ...usage(100, 0), input_token_details: { audio_tokens: 100 } }, "failed");
      await heard(session, "response.done");
      expect(await pointsOf(person)).toBe(1_000 - 20);
    });
    test("a response beside the conversation goes on when the conversation's is cancelled", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 256 });
      const ask = (response: Event) => session.send({ type: "response.create", response });
      await ask({ conversation: "none" });
      await until("it is asked for", () => received("response.create").length === 1);
      created("apart");
      await heard(session, "response.created");
      await session.send({ type: "response.cancel" });
      created("next");
      says("apart", 5);
      done("apart", usage(50, 200));
      done("next", usage(1, 2));
      await heard(session, "response.done", 2);
      expect((await tokensOf(person)).sort()).toEqual([
        [1, 2],
        [50, 200],
      ]);
    });
    test.each([
      ["is", undefined, 1],
      ["is not, where the upstream answers no speech", { type: "server_vad", create_response: false }, 0],
      ["is not, where it detects none", null, 0],
    ])(
      "speech whose response has not begun when its speaker leaves %s owed",
      async (_, turn_detection, rows) => {
        const person = await personWith(1_000);
        const session = await open(person, { instructions: "Be brief.", turn_detection });
        await heard(session, "session.updated");
        await session.send({ type: "input_audio_buffer.append", audio: audio(10) });
        await until("it is there", () => received("input_audio_buffer.append").length === 1);
        upstream.emit({ type: "input_audio_buffer.speech_started", audio_start_ms: 0 });
        upstream.emit({ type: "input_audio_buffer.speech_stopped", audio_end_ms: 10_000 });
        upstream.emit({ type: "input_audio_buffer.committed", item_id: "i" });
        await heard(session, "input_audio_buffer.committed");
        await session.stop();
        const owed = await tokensOf(person);
        expect(owed).toHaveLength(rows);
        if (rows > 0) expect(owed[0]![0]).toBeGreaterThanOrEqual(100);
      },
    );
    test("a smaller output limit holds less only once the upstream has confirmed it", async () => {
      upstream.silentOn.add("session.update");
      const person = await personWith(1_000);
      const session = await open(person, { max_output_tokens: 1 });
      const before = () => meteringOf(gateway).holdCount;
      await session.send({ type: "response.create", response: { max_output_tokens: 1 } });
      await until("it is asked for", () => received("response.create").length === 1);
      expect(before()).toBe(1);
      await Bun.sleep(50);
      // The fake's pace is unknown: a hundred tokens a second.
      await session.stop();
      const [[, unconfirmed] = []] = await tokensOf(person);
      expect(unconfirmed).toBeGreaterThan(1);
      upstream.silentOn.clear();
      const confirmed = await open(person, { max_output_tokens: 1 });
      await heard(confirmed, "session.updated");
      await confirmed.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length === 2);
      await Bun.sleep(50);
      await confirmed.stop();
      expect((await tokensOf(person)).map(([, completion]) => completion)).toContain(1);
    });
    test("shorter instructions are read only once the upstream has confirmed them", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { instructions: "word ".repeat(400), max_output_tokens: 10 });
      await heard(session, "session.updated");
      upstream.silentOn.add("session.update");
      await session.send({ type: "session.update", session: { instructions: "Hi" } });
      await session.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length === 1);
      await session.stop();
      const [[prompt] = []] = await tokensOf(person);
      expect(prompt).toBeGreaterThanOrEqual(400);
    });
    test("sound that is played faster than it was made costs what was made", async () => {
      const person = await personWith(1_000);
      const session = await open(person, { speed: 1.5 });
      created("r1");
      says("r1", 10);
      done("r1", null);
      await heard(session, "response.done");
      const [[, completion] = []] = await tokensOf(person);
      expect(completion).toBe(300);
    });
    test("a cancelled response that is never said to have ended costs what it can be until then", async () => {
      const clock = new ManualClock();
      const other = await bootGateway({ config: { pricingFile, redisUrl }, overrides: { clock } });
      const ada = await other.signIn("ada");
      await connect(other, upstream);
      const session = await open(ada, { max_output_tokens: 800 }, other);
      await session.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length === 1);
      created("r1");
      says("r1", 1);
      await heard(session, "response.output_audio.delta");
      clock.advance(2_000);
      await session.send({ type: "response.cancel" });
      await until("it is cancelled", () => received("response.cancel").length === 1);
      clock.advance(60_000);
      created("r2");
      done("r2", usage(1, 2));
      await heard(session, "response.done");
      await session.stop();
      await meteringOf(other).flush(5_000);
      const { records } = await other.rpc("usage.list", {}, ada);
      // The pace is unknown: a hundred tokens a second.
      expect(records.map((row: Event) => row.completion_tokens).sort()).toEqual([2, 200]);
      await other.stop();
    });
    test("a refusal that names no event gives the response up after half a minute in which it has not begun", async () => {
      const clock = new ManualClock();
      const other = await bootGateway({ config: { pricingFile, redisUrl }, overrides: { clock } });
      const ada = await other.signIn("ada");
      await connect(other, upstream);
      const session = await open(ada, { max_output_tokens: 10 }, other);
      await session.send({ type: "response.create" });
      await until("it is asked for", () => received("response.create").length === 1);
      upstream.emit({ type: "error", error: { message: "odd" } });
      await heard(session, "error");
      clock.advance(31_000);
      await session.stop();
      expect(meteringOf(other).holdCount).toBe(0);
      expect((await other.rpc("usage.list", {}, ada)).records).toEqual([]);
      await other.stop();
    });
    test.each([
      [{ type: "transcription" }, "config.type"],
      [{ prompt: { id: "pmpt_1" } }, "config.prompt"],
    ])("%p is refused by name", async (config, field) => {
      const person = await personWith(100);
      const refused = await gateway.call("realtime.start", { model: MODEL, config }, person);
      expect(refused.error).toMatchObject({ code: -32602, data: { fields: [field] } });
    });
  });

  test("a response that reads its own input says nothing about the conversation that the next one reads", async () => {
    const person = await personWith(200);
    const session = await open(person, { max_output_tokens: 10 });
    created("r1");
    done("r1", usage(400, 100));
    await heard(session, "response.done");
    await session.send({ type: "response.create", response: { input: [] } });
    await until("it is asked for", () => received("response.create").length === 1);
    created("r2");
    done("r2", usage(5, 5));
    await heard(session, "response.done", 2);
    await session.send({ type: "response.create" });
    await until("it is asked for", () => received("response.create").length === 2);
    await session.stop();
    const prompts = (await tokensOf(person)).map(([prompt]) => Number(prompt));
    expect(prompts.filter((prompt) => prompt >= 500)).toHaveLength(1);
  });

  test("one that the upstream began and nobody can pay costs what it read, as a debt", async () => {
    const person = await personWith(60);
    const session = await open(person, { max_output_tokens: 256 });
    for (let i = 0; i < 6; i++) await session.send({ type: "input_audio_buffer.append", audio: audio(10) });
    upstream.emit({ type: "input_audio_buffer.committed", item_id: "i" });
    created("r1");
    says("r1", 1);
    await heard(session, "session.closed");
    expect(session.types()).not.toContain("response.created");
    const [[prompt, completion] = [], ...more] = await tokensOf(person);
    expect(more).toEqual([]);
    expect(prompt).toBeGreaterThanOrEqual(600);
    expect(completion).toBe(0);
    expect(await pointsOf(person)).toBe(0);
  });

  test("an item that is read twice counts twice", async () => {
    const person = await personWith(300);
    const session = await open(person, { max_output_tokens: 10 });
    created("r1");
    done("r1", usage(400, 100));
    await heard(session, "response.done");
    const item = { type: "item_reference", id: "i" };
    await session.send({ type: "response.create", response: { input: [item, item, item] } });
    await until("it is asked for", () => received("response.create").length === 1);
    await session.stop();
    const prompts = (await tokensOf(person)).map(([prompt]) => Number(prompt));
    expect(Math.max(...prompts)).toBeGreaterThanOrEqual(1_500);
  });

  test("what a server that the client named tells the upstream counts as read", async () => {
    const person = await personWith(200);
    const session = await open(person, { max_output_tokens: 10 });
    const tools = [{ name: "t", description: "word ".repeat(500) }];
    upstream.emit({ type: "conversation.item.done", item: { type: "mcp_list_tools", tools } });
    await heard(session, "conversation.item.done");
    await session.send({ type: "response.create" });
    await until("it is asked for", () => received("response.create").length === 1);
    await session.stop();
    const [[prompt] = []] = await tokensOf(person);
    expect(prompt).toBeGreaterThanOrEqual(500);
  });

  test("an image counts under whatever name it comes", async () => {
    const person = await personWith(200);
    const session = await open(person, { max_output_tokens: 10 });
    const content = [{ type: "input_image", file_id: "file-1" }];
    const input = [{ type: "message", role: "user", content }];
    await session.send({ type: "response.create", response: { input } });
    await until("it is asked for", () => received("response.create").length === 1);
    await session.stop();
    const [[prompt] = []] = await tokensOf(person);
    expect(prompt).toBeGreaterThanOrEqual(1_445);
  });

  test("one response that is cancelled by its id ends no other", async () => {
    const person = await personWith(1_000);
    const session = await open(person, { max_output_tokens: 10 });
    created("r1");
    created("r2");
    await heard(session, "response.created", 2);
    await session.send({ type: "response.cancel", response_id: "r1" });
    created("r3");
    await heard(session, "response.created", 3);
    for (const id of ["r2", "r3"]) done(id, usage(7, 3));
    await heard(session, "response.done", 2);
    const rows = await tokensOf(person);
    expect(rows.filter(([, completion]) => completion === 3)).toHaveLength(2);
    expect(rows).toHaveLength(3);
  });

  describe("limits and models in settings", () => {
    test.each([0, -1, 1.5, "5", 10_000_001, 1e308, true, {}])("%p is refused as a limit", async (limit) => {
      const person = await personWith(100);
      const refused = await gateway.call(
        "realtime.start",
        { model: MODEL, config: { max_output_tokens: limit } },
        person,
      );
      expect(refused.error).toMatchObject({ code: -32602, data: { fields: ["config.max_output_tokens"] } });
      const session = await open(person, { max_output_tokens: 10 });
      for (const [event, field] of [
        [
          { type: "response.create", response: { max_output_tokens: limit } },
          "event.response.max_output_tokens",
        ],
        [{ type: "session.update", session: { Max_Tokens: limit } }, "event.session.Max_Tokens"],
      ] as const)
        expect((await session.send(event)).error).toMatchObject({ code: -32602, data: { fields: [field] } });
      const unlimited = await session.send({ type: "session.update", session: { max_output_tokens: "inf" } });
      expect(unlimited.result).toEqual({ ok: true });
    });

    test.each(["model", "Model", "ｍODEL"])("`%s` cannot change the model", async (name) => {
      const person = await personWith(100);
      const refused = await gateway.call(
        "realtime.start",
        { model: MODEL, config: { [name]: "other" } },
        person,
      );
      expect(refused.error).toMatchObject({ code: -32602, data: { fields: [`config.${name}`] } });
      const session = await open(person, { max_output_tokens: 10 });
      const update = await session.send({ type: "session.update", session: { [name]: "other" } });
      expect(update.error).toMatchObject({ code: -32602 });
      expect(session.closed()).toBeUndefined();
    });
  });

  test("a storm of sessions that are left at every moment leaves no hold", async () => {
    const person = await personWith(100_000);
    const seconds = () => Math.random() * 3;
    await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const session = await open(person, { max_output_tokens: 10 });
        const steps = [
          () => session.send({ type: "input_audio_buffer.append", audio: audio(Math.ceil(seconds())) }),
          () => session.send({ type: "response.create" }),
          () => created(`s${i}`),
          () => says(`s${i}`, 1),
          () => session.send({ type: "response.cancel" }),
          () => done(`s${i}`, usage(5, 5), "cancelled"),
        ];
        for (const step of steps.slice(0, i % (steps.length + 1))) await step();
        await (i % 2 ? session.stop() : session.send({ type: "session.stop" }));
      }),
    );
    await until("all is given back", () => meteringOf(gateway).holdCount === 0);
    expect(gateway.app.rooms.realtime.sessionCount).toBe(0);
  }, 30_000);
});
