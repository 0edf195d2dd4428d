/** Whose rights are taken away, what goes on because of them ends: on every surface and every instance. */
import { afterEach, describe, expect, test } from "bun:test";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import {
  chunk,
  type FakeUpstream,
  startUpstream,
  type UpstreamHandler,
} from "@model-gateway/testing/upstream.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";
import { deployedBefore, dialRaw, serveTunnel } from "../agents/support.ts";
import { bootPair, canShare, registerBackend } from "../instances/support.ts";

interface Held {
  text: string;
  isOver: boolean;
}

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Reads on until the other side ends it. */
function hold(response: Response): Held {
  expect(response.status).toBe(200);
  const held: Held = { text: "", isOver: false };
  const reading = (async () => {
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>)
      held.text += new TextDecoder().decode(piece);
  })();
  void reading
    .catch(() => {})
    .then(() => {
      held.isOver = true;
    });
  return held;
}

const json = (token: string) => ({ authorization: `Bearer ${token}`, "content-type": "application/json" });

const chatWith = async ({ url }: TestGateway, key: string, model = "m"): Promise<Held> =>
  hold(
    await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: json(key),
      body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "go on" }] }),
    }),
  );

const listen = async ({ url }: TestGateway, session: string, token?: string): Promise<Held> =>
  hold(await fetch(`${url}/api/rpc/events?session=${session}${token ? `&token=${token}` : ""}`));

async function openSocket({ url }: TestGateway, token: string): Promise<Held> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/api/rpc?token=${token}`);
  cleanups.push(() => socket.close());
  const held: Held = { text: "", isOver: false };
  socket.onmessage = ({ data }) => {
    held.text += data;
  };
  socket.onclose = () => {
    held.isOver = true;
  };
  await new Promise((resolve) => socket.addEventListener("open", resolve));
  socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" }));
  await until("the socket is someone's", () => held.text.includes("@example.com"));
  return held;
}

/** Says one word and never ends. */
const endless: UpstreamHandler = async (request, reply) => {
  reply.head(200, { "content-type": "text/event-stream" });
  await reply.write(chunk({ delta: { content: "and on" } }));
  await until("it is closed", () => request.closedAtMs !== null);
};

/** A video task's upstream, as DashScope words it: tasks that run until they are cancelled. */
function startTasks() {
  const tasks = new Map<string, "RUNNING" | "CANCELED">();
  const server = Bun.serve({
    port: 0,
    fetch(request) {
      const [, id, verb] = /\/api\/v1\/tasks\/([^/]+)(\/cancel)?$/.exec(new URL(request.url).pathname) ?? [];
      if (id && verb) tasks.set(id, "CANCELED");
      if (id) return Response.json({ output: { task_id: id, task_status: tasks.get(id) } });
      if (request.method !== "POST") return new Response();
      const task_id = `task-${tasks.size + 1}`;
      tasks.set(task_id, "RUNNING");
      return Response.json({ output: { task_id, task_status: "PENDING" } });
    },
  });
  cleanups.push(() => server.stop(true));
  const running = () => [...tasks.values()].filter((state) => state === "RUNNING").length;
  return { url: `http://127.0.0.1:${server.port}`, running, count: () => tasks.size };
}

const openRequests = ({ requests }: FakeUpstream): number =>
  requests.filter(({ closedAtMs }) => closedAtMs === null).length;

const setups: [string, () => Promise<{ admin: TestGateway; serving: TestGateway }>][] = [
  [
    "one instance",
    async () => {
      const gateway = await bootGateway({ config: { registrationOpen: true } });
      cleanups.push(() => gateway.stop());
      return { admin: gateway, serving: gateway };
    },
  ],
];
if (canShare)
  setups.push([
    "another instance",
    async () => {
      const { a, b, stop } = await bootPair();
      cleanups.push(stop);
      return { admin: a, serving: b };
    },
  ]);

describe.each(setups)("on %s", (_, boot) => {
  let admin: TestGateway;
  let serving: TestGateway;
  let upstream: FakeUpstream;
  let voice: RealtimeUpstream;
  let ada: string;

  const setUp = async () => {
    ({ admin, serving } = await boot());
    upstream = startUpstream({ models: ["m"] });
    upstream.answer(endless);
    voice = startRealtimeUpstream("openai");
    cleanups.push(upstream.stop, voice.stop);
    ada = await admin.signIn("ada");
    await registerBackend(admin, { type: "external_api", name: "up", url: `${upstream.url}/v1` });
    await registerBackend(admin, {
      type: "cloud-realtime",
      name: "voice",
      url: voice.url,
      api_key: "sk",
      models: ["omni"],
    });
    for (const { app } of [admin, serving])
      await until("both models are served", () => app.rooms.routing.modelCount === 2);
  };

  /** Everything that a signed-in person with a key can leave running. */
  const everything = async (token: string) => {
    const { key } = await serving.rpc("keys.create", { name: "key" }, token);
    const sent = await serving.rpc(
      "chat.send",
      { model: "m", messages: [{ role: "user", content: "go on" }] },
      token,
    );
    const { stream_session } = await serving.rpc("realtime.start", { model: "omni" }, token);
    return {
      "a chat with a key": await chatWith(serving, key),
      "chat.send, signed in": await listen(serving, sent.stream_id, token),
      "chat.send, by the stream's id": await listen(serving, sent.stream_id),
      "realtime, signed in": await listen(serving, stream_session, token),
      "a quiet channel": await listen(serving, crypto.randomUUID(), token),
      "a WebSocket": await openSocket(serving, token),
    };
  };
  const ended = (streams: Record<string, Held>) =>
    Object.entries(streams).flatMap(([name, { isOver }]) => (isOver ? name : []));

  test("a disabled user's streams, sockets and voice sessions end; those of others go on", async () => {
    await setUp();
    const bob = await admin.signIn("bob");
    const { id: bobId } = await admin.rpc("auth.me", {}, bob);
    const his = await everything(bob);
    const hers = await everything(ada);
    await until("all of it runs", () => openRequests(upstream) === 4 && voice.sessions() === 2);
    await admin.rpc("users.update", { user_id: bobId, disabled: true }, ada);
    await until("his are over", () => ended(his).length === Object.keys(his).length);
    await until("so are their upstreams", () => openRequests(upstream) === 2 && voice.sessions() === 1);
    expect(his["a chat with a key"].text).toContain("was revoked");
    expect(ended(hers)).toEqual([]);
    // Nothing new can be begun either.
    expect((await serving.call("realtime.start", { model: "omni" }, bob)).error.code).toBe(-32005);
  });

  test("a revoked key's streams end, and nothing else of its owner", async () => {
    await setUp();
    const [revoked, kept] = [
      await admin.rpc("keys.create", { name: "revoked" }, ada),
      await admin.rpc("keys.create", { name: "kept" }, ada),
    ];
    const his = await chatWith(serving, revoked.key);
    const others = { ...(await everything(ada)), kept: await chatWith(serving, kept.key) };
    await admin.rpc("keys.revoke", { key_id: revoked.id }, ada);
    await until("the stream is over", () => his.isOver);
    await until("so is its upstream", () => openRequests(upstream) === 3);
    expect(his.text).toContain("was revoked");
    expect(ended(others)).toEqual([]);
  });

  test("signing out ends what reads with that session, and no other", async () => {
    await setUp();
    const login = () => admin.rpc("auth.login", { email: "ada@example.com", password: PASSWORD });
    const [leaving, staying] = [await login(), await login()];
    const channel = crypto.randomUUID();
    const gone = [
      await listen(serving, channel, leaving.access_token),
      await openSocket(serving, leaving.access_token),
    ];
    const here = [
      await listen(serving, channel, staying.access_token),
      await openSocket(serving, staying.access_token),
    ];
    await admin.rpc("auth.logout", { refresh_token: leaving.refresh_token });
    await until("they are over", () => gone.every(({ isOver }) => isOver));
    expect(here.some(({ isOver }) => isOver)).toBe(false);
    expect((await serving.call("auth.me", {}, leaving.access_token)).error.code).toBe(-32005);
    expect((await serving.call("auth.me", {}, staying.access_token)).result.email).toBe("ada@example.com");
  });

  /** Someone new: sign-ins of one account are limited, and instances of other tests share the count. */
  const signedInTwice = async () => {
    const account = { email: `${crypto.randomUUID()}@example.com`, password: PASSWORD };
    return [await admin.rpc("auth.register", account), await admin.rpc("auth.login", account)];
  };

  test("what signing out ended cannot be taken up again by its id", async () => {
    await setUp();
    const [leaving, staying] = await signedInTwice();
    const send = async (token: string) => {
      const messages = [{ role: "user", content: "go on" }];
      return (await serving.rpc("chat.send", { model: "m", messages }, token)).stream_id as string;
    };
    const [read, unread, others] = [
      await send(leaving.access_token),
      await send(leaving.access_token),
      await send(staying.access_token),
    ];
    const channel = crypto.randomUUID();
    const gone = [
      await listen(serving, read, leaving.access_token),
      await listen(serving, channel, leaving.access_token),
      // Someone who was given the id reads by the right of the one who signs out.
      await listen(serving, read),
    ];
    await admin.rpc("auth.logout", { refresh_token: leaving.refresh_token });
    await until("they are over", () => gone.every(({ isOver }) => isOver));
    const status = async (session: string, more = "") => {
      const leave = new AbortController();
      const url = `${serving.url}/api/rpc/events?session=${session}${more}`;
      const { status } = await fetch(url, { signal: leave.signal });
      leave.abort();
      return status;
    };
    for (const session of [read, unread, channel])
      for (const more of ["", "&last_event_id=0", `&token=${leaving.access_token}`])
        expect({ session, more, status: await status(session, more) }).toEqual({
          session,
          more,
          status: 404,
        });
    // It is still its owner's, and what another sign-in opened is still open to those who know its id.
    expect(await status(read, `&token=${staying.access_token}`)).toBe(200);
    expect(await status(others)).toBe(200);
  });

  test("a refresh token that comes back ends its session at once, and no other", async () => {
    await setUp();
    const [copied, other] = await signedInTwice();
    const renewed = await admin.rpc("auth.refresh", { refresh_token: copied.refresh_token });
    const socket = await openSocket(serving, renewed.access_token);
    const stream = await listen(serving, crypto.randomUUID(), renewed.access_token);
    const stays = await openSocket(serving, other.access_token);
    const again = await admin.call("auth.refresh", { refresh_token: copied.refresh_token });
    expect(again.error.code).toBe(-32005);
    await until("its socket and its stream are over", () => socket.isOver && stream.isOver);
    for (const { access_token } of [copied, renewed])
      await until(
        "its access tokens are refused",
        async () => (await serving.call("auth.me", {}, access_token)).error?.code === -32005,
      );
    expect((await serving.call("auth.refresh", { refresh_token: renewed.refresh_token })).error.code).toBe(
      -32005,
    );
    expect((await serving.call("auth.me", {}, other.access_token)).result.id).toBe(other.user.id);
    expect(stays.isOver).toBe(false);
  });

  inOneProcess(
    "video jobs of a revoked key and of a disabled user are cancelled, upstream too, and nothing is charged",
    async () => {
      await setUp();
      const tasks = startTasks();
      await registerBackend(admin, { type: "dashscope", name: "film", url: tasks.url, models: ["wan"] });
      await until("it is served", () => serving.app.rooms.routing.modelCount === 3);
      const bob = await admin.signIn("bob");
      const { id: bobId } = await admin.rpc("auth.me", {}, bob);
      const asked = { model: "wan", prompt: "a fox", duration_seconds: 5 };
      const submit = async (key: string) => {
        const response = await fetch(`${serving.url}/v1/video/generations`, {
          method: "POST",
          headers: json(key),
          body: JSON.stringify(asked),
        });
        return response.status === 200 ? ((await response.json()) as { id: string }).id : response.status;
      };
      const [revoked, kept] = [
        await admin.rpc("keys.create", { name: "revoked" }, ada),
        await admin.rpc("keys.create", { name: "kept" }, ada),
      ];
      const [hers, stays] = [await submit(revoked.key), await submit(kept.key)];
      const { job_id: his } = await serving.rpc("video.create", asked, bob);
      await until("all are made", () => tasks.running() === 3);
      const follower = await listen(serving, String(hers));
      await admin.rpc("keys.revoke", { key_id: revoked.id }, ada);
      await until("the key's is cancelled upstream", () => tasks.running() === 2);
      await until("its follower is told", () => follower.text.includes("revoked"));
      await admin.rpc("users.update", { user_id: bobId, disabled: true }, ada);
      await until("his is cancelled upstream", () => tasks.running() === 1);
      expect(await serving.rpc("video.get", { job_id: hers }, ada)).toMatchObject({
        status: "cancelled",
        error: expect.stringContaining("revoked"),
        cost: 0,
      });
      expect(await serving.rpc("video.get", { job_id: stays }, ada)).toMatchObject({ error: null });
      // Nothing new is made, and what was held for the jobs is free again.
      expect(await submit(revoked.key)).toBe(401);
      expect(tasks.count()).toBe(3);
      await admin.rpc("users.update", { user_id: bobId, disabled: false }, ada);
      const again = await admin.signIn("bob");
      expect(await admin.rpc("video.get", { job_id: his }, again)).toMatchObject({
        status: "cancelled",
        cost: 0,
      });
      // By whichever instance runs the jobs.
      const holds = () =>
        [...new Set([admin, serving])].map(({ app }) => (app.rooms.metering as MeteringService).holdCount);
      await until("only one job is held for", () => holds().reduce((sum, count) => sum + count) === 1);
      expect((await admin.rpc("usage.list", {}, again)).records).toEqual([]);
    },
  );

  test.each(["direct", "tunnel"] as const)("a deregistered node's answers end: %s", async (way) => {
    await setUp();
    const { key } = await admin.rpc("keys.create", { name: "key" }, ada);
    const engine = startUpstream({ models: ["tiny"] });
    cleanups.push(engine.stop);
    engine.answer(endless);
    const { agent_id, token } = await admin.rpc("agents.register", { machine_name: "n", version: "1" }, ada);
    await deployedBefore(admin, agent_id, "tiny");
    const node = await dialRaw(admin, token);
    serveTunnel(node, { baseUrl: engine.url, apiKey: null });
    const models = [{ model_id: "tiny", port: Number(new URL(engine.url).port) }];
    await node.hello(
      way === "direct"
        ? { host: "127.0.0.1", direct: true, tunnel: false, models }
        : { direct: false, tunnel: true, models },
    );
    await until("it is routable", () => serving.app.rooms.routing.modelCount === 3);
    const answer = await chatWith(serving, key, "tiny");
    const other = await chatWith(serving, key);
    await until("both run", () => openRequests(engine) === 1 && openRequests(upstream) === 1);
    await admin.rpc("agents.deregister", { agent_id }, ada);
    await until("the answer is over", () => answer.isOver);
    if (way === "direct") await until("the engine is left", () => openRequests(engine) === 0);
    expect(answer.text).toContain("error");
    expect(answer.text).not.toContain("[DONE]");
    expect(other.isOver).toBe(false);
  });
});
