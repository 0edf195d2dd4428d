/**
 * Every method of the registry, called by everyone who may not, with the owner's own ids in every parameter that can
 * name something, over HTTP and WebSocket: it is refused, nothing of the owner's is told, and nothing changes.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion, startUpstream } from "@model-gateway/testing/upstream.ts";
import { minimax, startMinimax } from "@model-gateway/testing/video.ts";
import { z } from "zod";
import { Registry } from "../../src/kernel/registry.ts";
import { surfaces } from "../../src/rooms/index.ts";
import { registerBackend } from "../instances/support.ts";
import { LOOKS_LIKE_A_NAME, NAME_NOTHING, NAMES, ROWS, type Row, type Who } from "./access.ts";

const { methods } = new Registry(surfaces);
const CANARY = "canary-7f3a";
/** Others may name theirs like this. */
const PROJECT = "film";
const PEOPLE = ["owner", "stranger", "member", "group_admin", "admin"] as const;
const NOBODIES = ["anonymous", "limited_key", "node", "disabled", "signed_out", "garbage"] as const;
type Role = (typeof PEOPLE)[number] | (typeof NOBODIES)[number] | "admin_token";
const ROLES: readonly Role[] = [...PEOPLE, ...NOBODIES, "admin_token"];

/** Who is let in. */
const LETS_IN: Record<Who, readonly Role[]> = {
  public: ROLES,
  socket: [],
  person: PEOPLE,
  person_or_token: [...PEOPLE, "admin_token"],
  own: ["owner"],
  member: ["owner", "member", "group_admin", "admin"],
  group_admin: ["owner", "group_admin", "admin"],
  group_owner: ["owner"],
  admin: ["admin"],
  admin_token: ["admin_token"],
};
/** Administrators may see whose request it was, and what it cost; what people say to models they may not. */
const ADMIN_SEES: ReadonlySet<string> = new Set(["requests.get"]);

const paramsOf = (method: string): string[] => {
  const schema = z.toJSONSchema(methods.get(method)!.params, { io: "input", unrepresentable: "any" });
  return Object.keys((schema as { properties?: object }).properties ?? {});
};

test("each method is in the table, once", () => {
  expect(ROWS.map(({ method }) => method).sort()).toEqual([...methods.keys()].sort());
});

test("each parameter that names something says what", () => {
  const unsaid = [...methods.keys()].flatMap((method) =>
    paramsOf(method)
      .filter((name) => LOOKS_LIKE_A_NAME.test(name) && !(name in NAMES) && !NAME_NOTHING.has(name))
      .map((name) => `${method} ${name}`),
  );
  expect(unsaid.filter((name) => !name.endsWith(" api_key"))).toEqual([]);
});

// biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
type Answer = { result?: any; error?: { code: number; message: string } };
type Caller = (method: string, params: unknown) => Promise<Answer>;

let gateway: TestGateway;
const tokens = {} as Record<Role, string>;
const things: Record<string, string> = {};
const sockets: WebSocket[] = [];
/** Bodies of what models are asked. */
const upstreamSees: string[] = [];
const upstreams: { stop(): void }[] = [];
/** One address each: wrong tokens and calls without signing in are limited by address. */
const address = () => `10.${Array.from(crypto.getRandomValues(new Uint8Array(3))).join(".")}`;

const overHttp =
  (role: Role): Caller =>
  async (method, params) => {
    const answer = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-forwarded-for": address(),
        ...(tokens[role] && { authorization: `Bearer ${tokens[role]}` }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    return (await answer.json()) as Answer;
  };

/** On one socket, until the other side closes it: that of someone who is not signed in ends soon. */
function overSocket(role: Role): Caller {
  const url = `${gateway.url.replace("http", "ws")}/api/rpc?token=${encodeURIComponent(tokens[role])}`;
  let socket: WebSocket | null = null;
  const waiting = new Map<number, (answer: Answer) => void>();
  const open = async (): Promise<WebSocket> => {
    const opening = new WebSocket(url, { headers: { "x-forwarded-for": address() } } as never);
    sockets.push(opening);
    opening.onmessage = ({ data }) => {
      const answer = JSON.parse(String(data)) as Answer & { id: number };
      waiting.get(answer.id)?.(answer);
    };
    opening.onclose = () => {
      if (socket === opening) socket = null;
    };
    await new Promise((resolve) => opening.addEventListener("open", resolve));
    return opening;
  };
  let count = 0;
  return async (method, params) => {
    socket ??= await open();
    const id = ++count;
    socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    return new Promise((resolve) => waiting.set(id, resolve));
  };
}

const callers = {} as Record<"HTTP" | "WebSocket", Record<Role, Caller>>;

beforeAll(async () => {
  gateway = await bootGateway({ config: { trustedProxies: ["127.0.0.1"] } });
  const { rpc } = gateway;
  const upstream = startUpstream({ models: ["m"] });
  upstream.answer(({ text, json }, reply) => {
    upstreamSees.push(text);
    return reply.json(completion(text.includes(CANARY) && !json.n ? `${CANARY} said` : "something"));
  });
  const film = startMinimax();
  film.script = [minimax.status("Processing")];
  const voice = startRealtimeUpstream("openai");
  upstreams.push(upstream, film, voice);
  const signUp = (name: string) =>
    rpc("auth.register", { email: `${name}@example.com`, password: PASSWORD, name });
  const [admin, owner, stranger, member, groupAdmin, disabled, leaver, other] = [
    await signUp("admin"),
    await signUp(`owner-${CANARY}`),
    await signUp("stranger"),
    await signUp("member"),
    await signUp("group-admin"),
    await signUp("disabled"),
    await signUp("leaver"),
    await signUp("other"),
  ];
  await registerBackend(gateway, { type: "external", name: "up", url: `${upstream.url}/v1` });
  await registerBackend(gateway, { type: "minimax", name: "film", url: film.url, models: ["clip"] });
  await registerBackend(gateway, {
    type: "cloud-realtime",
    name: "voice",
    url: voice.url,
    api_key: "sk",
    models: ["omni"],
  });
  await until("all is served", () => gateway.app.rooms.routing.modelCount === 3);

  const as = (token: string) => (method: string, params: unknown) => rpc(method, params, token);
  const hers = as(owner.access_token);
  const email = owner.user.email;
  const limited = await hers("keys.create", {
    name: CANARY,
    project: PROJECT,
    total_budget_usd: 1,
    requests_per_minute: 50,
  });
  const group = await hers("group.create", { name: `group ${CANARY}` });
  for (const [who, role] of [
    [member, "member"],
    [groupAdmin, "admin"],
  ] as const)
    await hers("group.members.add", { group_id: group.id, email: who.user.email, role });
  await rpc("group.credits.topup", { group_id: group.id, points: 100 }, admin.access_token);
  const invitation = await hers("group.invite.create", { group_id: group.id, email: "other@example.com" });
  const [invited] = await hers("group.invite.list", { group_id: group.id });
  const conversation = await hers("conversations.create", { title: CANARY });
  const chat = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${limited.key}`, "x-service-ref": CANARY },
    body: JSON.stringify({
      model: "m",
      conversation_id: conversation.id,
      messages: [{ role: "user", content: CANARY }],
    }),
  });
  expect(await chat.text()).toContain(CANARY);
  const read = await hers("conversations.get", { conversation_id: conversation.id });
  const stored = await fetch(`${gateway.url}/v1/responses`, {
    method: "POST",
    headers: { authorization: `Bearer ${limited.key}` },
    body: JSON.stringify({ model: "m", input: CANARY }),
  });
  const response = (await stored.json()) as { id: string };
  const by = { authorization: `Bearer ${limited.key}` };
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File([JSON.stringify({ custom_id: CANARY })], "in.jsonl"));
  const uploaded = await fetch(`${gateway.url}/v1/files`, { method: "POST", headers: by, body: form });
  const file = (await uploaded.json()) as { id: string };
  const batched = await fetch(`${gateway.url}/v1/batches`, {
    method: "POST",
    headers: by,
    body: JSON.stringify({
      ...{ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" },
    }),
  });
  const batch = (await batched.json()) as { id: string };
  const sent = await hers("chat.send", { model: "m", messages: [{ role: "user", content: CANARY }] });
  const job = await hers("video.create", { model: "clip", prompt: CANARY });
  const talk = await hers("realtime.start", { model: "omni" });
  const watch = await hers("requests.watch", {});
  const session = await rpc("auth.login", { email, password: PASSWORD });
  const sessions = await hers("auth.sessions.list", {});
  const link = await rpc("users.invite", { email: "someone@example.com" }, admin.access_token);
  const node = await rpc("agents.register", { machine_name: "n", version: "1" }, admin.access_token);
  await rpc("auth.logout", { refresh_token: leaver.refresh_token });
  await rpc("users.update", { user_id: disabled.user.id, disabled: true }, admin.access_token);

  Object.assign(tokens, {
    owner: owner.access_token,
    stranger: stranger.access_token,
    member: member.access_token,
    group_admin: groupAdmin.access_token,
    admin: admin.access_token,
    anonymous: "",
    limited_key: limited.key,
    node: node.token,
    disabled: disabled.access_token,
    signed_out: leaver.access_token,
    garbage: `${owner.access_token.slice(0, -4)}AAAA`,
    admin_token: ADMIN_TOKEN,
  });
  Object.assign(things, {
    $batch: batch.id,
    $conversation: conversation.id,
    $email: email,
    $file: file.id,
    $group: group.id,
    $identity: crypto.randomUUID(),
    $invitation: invited.id,
    $invite: invitation.token,
    $job: job.job_id,
    $key: limited.id,
    $link: link.id,
    $member: member.user.id,
    $memory: crypto.randomUUID(),
    $message: read.messages[0].id,
    $node: node.agent_id,
    $prefix: limited.key_prefix,
    $project: PROJECT,
    $response: response.id,
    $voiceStream: talk.stream_session,
    $refresh: session.refresh_token,
    $request: chat.headers.get("x-request-id")!,
    $session: sessions.find(({ current }: { current: boolean }) => !current).id,
    $stream: sent.stream_id,
    $user: owner.user.id,
    $voice: talk.session_id,
    $watch: watch.stream_id,
    $other: other.access_token,
  });
  callers.HTTP = Object.fromEntries(ROLES.map((role) => [role, overHttp(role)])) as Record<Role, Caller>;
  callers.WebSocket = Object.fromEntries(ROLES.map((role) => [role, overSocket(role)])) as Record<
    Role,
    Caller
  >;
});
afterAll(async () => {
  for (const socket of sockets) socket.close();
  await gateway.stop();
  for (const { stop } of upstreams) stop();
});

const filled = (params: string): Record<string, unknown> =>
  JSON.parse(params.replace(/\$\w+/g, (name) => things[name]!)) as Record<string, unknown>;

/** With the owner's thing in each parameter in turn that can name one, besides those that the method needs. */
function* variants({ method, params }: Row): Generator<Record<string, unknown>> {
  const given = filled(params);
  yield given;
  for (const name of paramsOf(method)) {
    const value = NAMES[name];
    if (value === undefined || name in given) continue;
    yield { ...given, [name]: typeof value === "string" ? things[value] : value };
  }
}

/** What the owner has and what the service is set to, as far as others could change it. */
async function everything(): Promise<string> {
  const hers = callers.HTTP.owner;
  const theirs = callers.HTTP.admin;
  const { $group: group_id, $conversation: conversation_id, $job: job_id, $user } = things;
  const at = async (call: Caller, method: string, params: object, leave: readonly string[] = []) => {
    const { result, error } = await call(method, params);
    expect(error, method).toBeUndefined();
    return JSON.stringify(result, (name, value) => (leave.includes(name) ? undefined : value));
  };
  const busy = [
    "last_used_at",
    "spent_month_usd",
    "spent_total_usd",
    "last_refusal",
    "updated_ago",
    "created_ago",
  ];
  return [
    await at(hers, "auth.me", {}),
    await at(hers, "keys.list", {}, busy),
    await at(hers, "conversations.get", { conversation_id }, busy),
    await at(hers, "group.get", { group_id }),
    await at(hers, "group.members.list", { group_id }),
    await at(hers, "group.models.list", { group_id }),
    await at(hers, "group.invite.list", { group_id }),
    await at(hers, "group.credits.balance", { group_id }),
    await at(hers, "ledger.self", {}),
    await at(hers, "video.get", { job_id }, ["progress", "status"]),
    await at(hers, "auth.sessions.list", {}, busy),
    (await callers.HTTP.owner("billing.plan", {})).result.current_tier,
    await at(theirs, "backends.list", {}, [
      "request_count",
      "latency_ms",
      "checked_at",
      "state",
      "detail",
      "history",
    ]).then((text) => [...text.matchAll(/"name":"[^"]*"|"enabled":\w+/g)].join()),
    await at(theirs, "routes.list", {}),
    await at(theirs, "billing.prices.list", {}),
    await at(theirs, "billing.video.pricing.get", {}),
    await at(theirs, "providers.list", {}),
    await at(theirs, "agents.list", {}, ["heartbeat_at"]),
    await at(theirs, "users.links.list", {}),
    await at(theirs, "users.list", { search: "example.com" }, ["last_seen_at", ...busy]).then((text) =>
      JSON.stringify(JSON.parse(text).users.find(({ id }: { id: string }) => id === $user)),
    ),
  ].join("\n");
}

describe.each(["HTTP", "WebSocket"] as const)("over %s", (surface) => {
  let before: string;
  beforeAll(async () => {
    before = await everything();
  });

  test.each(ROWS.filter(({ who }) => who !== "public").map((row) => [row.method, row] as const))(
    "%s",
    async (method, row) => {
      for (const role of ROLES) {
        const isNobody = (NOBODIES as readonly string[]).includes(role);
        const isIn =
          LETS_IN[row.who].includes(role) || (row.who === "socket" && isNobody && surface === "WebSocket");
        if (isIn && role !== "stranger") continue;
        for (const params of variants(row)) {
          const { result, error } = await callers[surface][role](method, params);
          const said = JSON.stringify(result ?? error);
          const what = `${role} ${JSON.stringify(params)} ${said.slice(0, 300)}`;
          if (!(role === "admin" && ADMIN_SEES.has(method)) && !isIn) {
            const mayAnswer = row.isQuiet && (PEOPLE as readonly string[]).includes(role);
            if (!mayAnswer) expect(error?.code, what).toBeOneOf([-32000, -32005, -32007, -32601]);
            if (isNobody) expect(error?.code, what).toBeOneOf([-32005, -32601]);
          }
          if (role !== "admin") {
            const told = said.replaceAll(JSON.stringify(params).slice(1, -1), "");
            const isEcho = Object.values(params).some((value) => value === CANARY || value === things.$email);
            if (!isEcho) expect(told, what).not.toContain(CANARY);
          }
        }
      }
    },
  );

  test("nothing of the owner's and nothing of the service has changed", async () => {
    expect(await everything()).toBe(before);
  });
});

describe("with a key of someone else", () => {
  let before: string;
  const keys: string[] = [];
  beforeAll(async () => {
    before = await everything();
    for (const role of ["stranger", "member", "admin"] as const)
      keys.push((await callers.HTTP[role]("keys.create", { name: "k" })).result.key);
    const { result } = await callers.HTTP.member("keys.create", { name: "k", group_id: things.$group });
    keys.push(result.key);
  });

  /** Every path that takes a key, with the owner's ids wherever a body may have one. */
  const doors = (): [path: string, body: object | null][] => {
    const messages = [{ role: "user", content: "what did we say?" }];
    const { $conversation: conversation_id, $response: previous_response_id, $job, $batch, $file } = things;
    const own = { conversation_id, conversation: conversation_id, previous_response_id };
    return [
      [`/v1/batches/${$batch}`, null],
      [`/v1/files/${$file}`, null],
      [`/v1/files/${$file}/content`, null],
      [`/v1/video/generations/${$job}`, null],
      [`/v1/video/generations/${$job!.toUpperCase()}`, null],
      ["/v1/chat/completions", { model: "m", messages, ...own }],
      ["/v1/chat/completions", { model: "m", messages, extra: own }],
      ["/v1/completions", { model: "m", prompt: "p", ...own }],
      ["/v1/messages", { model: "m", messages, max_tokens: 5, ...own }],
      ["/v1/responses", { model: "m", input: "p", ...own }],
      ["/v1/responses", { model: "m", input: "p", previous_response_id }],
      ["/v1/responses", { model: "m", input: "p", conversation: { id: conversation_id } }],
      ["/api/chat", { model: "m", messages, stream: false, ...own }],
      ["/api/generate", { model: "m", prompt: "p", stream: false, ...own }],
      ["/v1/embeddings", { model: "m", input: "p", ...own }],
    ];
  };

  test("nothing is read, and nothing is added", async () => {
    upstreamSees.length = 0;
    for (const key of keys)
      for (const [path, body] of doors()) {
        const answer = await fetch(gateway.url + path, {
          method: body ? "POST" : "GET",
          headers: { authorization: `Bearer ${key}`, "x-session-id": things.$stream! },
          body: body && JSON.stringify(body),
        });
        const text = await answer.text();
        expect([path, text.includes(things.$email!)]).toEqual([path, false]);
        if (body === null) expect([path, answer.status]).toEqual([path, 404]);
      }
    // What was said before is not even sent to the model.
    for (const sent of upstreamSees) expect(sent).not.toContain(CANARY);
    expect(await everything()).toBe(before);
  });

  test("channels of others are not found, and what is pushed into them goes nowhere", async () => {
    const listen = async (session: string, role: Role) => {
      const leave = new AbortController();
      const url = `${gateway.url}/api/rpc/events?session=${session}&token=${tokens[role]}`;
      const { status } = await fetch(url, { signal: leave.signal });
      leave.abort();
      return status;
    };
    for (const name of ["$stream", "$watch", "$job", "$voiceStream"]) {
      for (const role of ["stranger", "member", "group_admin", "admin"] as const)
        expect([name, role, await listen(things[name]!, role)]).toEqual([name, role, 404]);
      expect([name, await listen(things[name]!, "owner")]).toEqual([name, 200]);
    }
  });
});

test("those who may, can", async () => {
  for (const body of [
    { previous_response_id: things.$response, input: "go on" },
    { conversation_id: things.$conversation, messages: [{ role: "user", content: "go on" }] },
  ]) {
    const path = "input" in body ? "/v1/responses" : "/v1/chat/completions";
    const answer = await fetch(gateway.url + path, {
      method: "POST",
      headers: { authorization: `Bearer ${tokens.limited_key}` },
      body: JSON.stringify({ model: "m", ...body }),
    });
    expect([path, answer.status]).toEqual([path, 200]);
    await answer.text();
    if ("input" in body) expect(upstreamSees.at(-1)).toContain(CANARY);
  }
  const roleOf: Partial<Record<Who, Role>> = {
    own: "owner",
    member: "member",
    group_admin: "group_admin",
    group_owner: "owner",
  };
  for (const row of ROWS) {
    const role = roleOf[row.who];
    if (!role) continue;
    const call =
      row.method === "group.invite.accept"
        ? gateway.call(row.method, filled(row.params), things.$other)
        : callers.HTTP[role](row.method, filled(row.params));
    const { error } = await call;
    // Nobody has linked a sign-in, and the invitation was revoked by the group's admin.
    if (row.method === "auth.identities.remove" || row.method === "group.invite.accept")
      expect(error?.message, row.method).toMatch(/no linked sign-in|nvitation/);
    else if (row.method === "memory.delete") expect(error?.message ?? "", row.method).not.toContain("denied");
    else expect(error, row.method).toBeUndefined();
  }
});
