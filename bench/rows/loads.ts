import { readFileSync } from "node:fs";
import { type Address, type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { type Measured, Samples } from "../lib/figures.ts";
import type { LoadPlan } from "../lib/load.ts";
import { cpuUs, rssMb } from "../lib/processes.ts";
import { checkMessages } from "../lib/router.ts";
import type { Peer } from "../lib/targets.ts";

type Plan = Omit<LoadPlan, keyof Address>;
type Shown = "cpu" | "latency" | "p99" | "firstEvent" | "gap" | "memory";

interface LoadRow {
  group: string;
  name: string;
  /** What processor time is divided by. */
  per: "request" | "event";
  shows: readonly Shown[];
  plan(bench: Bench): Plan;
  /** Those that can do it; unless given, all but claude-code-router, which takes Messages only. */
  only?: readonly Peer[];
  /** With requests that are paid in points. */
  inPoints?: boolean;
}

interface Tested {
  measured: Measured;
  target: Address;
  /** Null: what it costs is not the question. */
  pid: number | null;
  share: number;
}

/** A service that runs for days is measured warm: the last of its code is compiled after tens of thousands of requests. */
const WARM_UP_FACTOR = 4;
const WARM_UP_STREAMS = { streams: 1_000, connections: 250 };

/** Usage is written within half a second. */
const SETTLED_MS = 800;

const CHATTING: readonly Peer[] = ["nginx", "bare", "portkey", "gateway"];
const PARSING: readonly Peer[] = [...CHATTING, "parsing"];
/** Portkey's would translate the one API, and has to be told of each upstream of the other. */
const PASSING: readonly Peer[] = CHATTING.filter((peer) => peer !== "portkey");

function testedOf({ gateway, targets, upstreamPort }: Bench, row: LoadRow): Tested[] {
  const { shows, only = CHATTING, inPoints } = row;
  if (inPoints)
    return [
      { measured: "gateway", target: { ...gateway, keys: gateway.groupKeys }, pid: gateway.pid, share: 1 },
    ];
  const through = targets.flatMap((target): Tested[] => {
    if (!only.includes(target.peer)) return [];
    const tested: Tested = { measured: target.peer, target, pid: target.pid, share: target.share };
    return target.peer === "bare" ? [tested, { ...tested, measured: "bareAgain" }] : [tested];
  });
  // Added latency is what is above that of the upstream without anything between.
  const direct: Tested = {
    measured: "direct",
    target: { port: upstreamPort, key: "none", headers: "" },
    pid: null,
    share: 1,
  };
  return shows.includes("cpu") ? through : [direct, ...through];
}

async function sample(row: LoadRow, { measured, target, pid, share }: Tested, plan: Plan, into: Samples) {
  const requests = plan.stream ? plan.requests : Math.ceil(plan.requests * share);
  const before = pid === null ? 0 : cpuUs(pid);
  const report = await runLoad(target, { ...plan, requests });
  if (report.errors > 0) throw new Error(`${row.name}, ${measured}: ${report.errors} requests failed`);
  const add = (name: string, unit: "µs" | "ms" | "MB", value: number) =>
    into.add(measured, `${row.name}, ${name}`, unit, value);
  // What it has yet to write belongs to what it was asked.
  if (pid !== null) await Bun.sleep(SETTLED_MS);
  const count = row.per === "event" ? report.events : report.requests;
  for (const shown of row.shows) {
    if (shown === "cpu") add(`CPU per ${row.per}`, "µs", (cpuUs(pid!) - before) / count);
    if (shown === "latency") add("p50", "µs", report.p50Us);
    if (shown === "latency" || shown === "p99") add("p99", "µs", report.p99Us);
    if (shown === "firstEvent") add("first token p50", "ms", report.firstEventP50Ms);
    if (shown === "gap") add("longest silence", "ms", report.gapMaxMs);
    if (shown === "gap") add("delay p99", "ms", report.delayP99Ms);
    if (shown === "memory") add("memory", "MB", rssMb(pid!));
  }
}

/** The same kind of work; streams that speak faster, so that it takes seconds and not minutes. */
const warmUpOf = (plan: Plan): Plan =>
  plan.stream
    ? {
        ...plan,
        body: JSON.stringify({ ...JSON.parse(plan.body), seed: 1 }),
        connections: WARM_UP_STREAMS.connections,
        requests: WARM_UP_STREAMS.streams,
      }
    : { ...plan, requests: plan.requests * WARM_UP_FACTOR };

/** What each process has done until it was warm: rows of the same work need not have it done again. */
const warm = new Set<string>();

async function warmUp(row: LoadRow, tested: Tested, plan: Plan): Promise<void> {
  const { target, measured } = tested;
  const { path, stream, body } = plan;
  const work = JSON.stringify([target.port, target.keys, path, stream, body]);
  if (warm.has(work)) return;
  warm.add(work);
  if (row.group === "translated") await checkMessages(measured, target);
  await sample(row, tested, warmUpOf(plan), new Samples(row.group));
}

async function measure(row: LoadRow, bench: Bench) {
  const plan = row.plan(bench);
  const tested = testedOf(bench, row);
  for (const each of tested) await warmUp(row, each, plan);
  const samples = new Samples(row.group);
  for (let round = 0; round < bench.rounds; round++)
    for (const each of tested) await sample(row, each, plan, samples);
  return samples.figures;
}

const LONG_PROMPT = 'The quick brown fox said "no" to the lazy dog.\n'.repeat(1_300);
const TEXTS = Array.from({ length: 32 }, (_, i) => `text ${i}`);

const chat = (connections: number, requests: number, content = "hi") => ({
  path: CHAT_PATH,
  body: chatBody(content),
  connections,
  requests,
  stream: false,
});

const streams = (count: number): LoadRow => ({
  group: "streams",
  name: `${count.toLocaleString("en")} streams`,
  per: "event",
  shows: ["cpu", "gap", "memory"],
  plan: () => ({
    path: CHAT_PATH,
    body: chatBody("hi", { stream: true }),
    connections: count,
    // A few streams alone are too little work to be measured in hundredths of a second.
    requests: Math.max(count, 200),
    stream: true,
  }),
});

/** The other APIs of a chat: the same answer, in other words. */
const VOICES = {
  responses: { path: "/v1/responses", body: { input: "hi", store: false } },
  messages: { path: "/v1/messages", body: { max_tokens: 100, messages: [{ role: "user", content: "hi" }] } },
} as const;

const TRANSLATING: Record<"voices" | "translated", readonly Peer[]> = {
  voices: ["gateway"],
  translated: ["router", "gateway"],
};

/** Translated for an upstream that speaks chats; as it is to one that speaks the API, through all. */
const voiceRows = (voice: keyof typeof VOICES, isNative: boolean): LoadRow[] => {
  const { path, body: fields } = VOICES[voice];
  const body = { model: isNative ? "native" : "bench", ...fields };
  const name = isNative ? `${voice} as it is` : voice;
  // Whose Messages become chats is what claude-code-router is for.
  const translated = { responses: "voices", messages: "translated" } as const;
  const group = isNative ? "verbatim" : translated[voice];
  const only = isNative ? PASSING : TRANSLATING[group as keyof typeof TRANSLATING];
  return [
    {
      group,
      name: `${name}, 64 connections`,
      per: "request",
      shows: ["cpu"],
      only,
      plan: ({ scale }) => ({
        path,
        body: JSON.stringify(body),
        connections: 64,
        requests: scale(15_000),
        stream: false,
      }),
    },
    {
      group,
      name: `${name}, 200 streams`,
      per: "event",
      shows: ["cpu"],
      only,
      plan: () => ({
        path,
        body: JSON.stringify({ ...body, stream: true }),
        connections: 200,
        requests: 200,
        stream: true,
      }),
    },
  ];
};

const SOURCE = readFileSync(import.meta.path, "utf8");
const PARAMETERS = { type: "object", properties: { path: { type: "string" }, limit: { type: "integer" } } };
const PRINTED = `\u001b[32mok\u001b[0m ${SOURCE.slice(0, 4_000)}`;

/** A turn of a coding agent: a file is read, and its text comes back. */
const agentTurn = {
  chat: (id: string) => {
    const call = { name: "read_file", arguments: JSON.stringify({ path: `src/${id}.ts`, limit: 100 }) };
    return [
      { role: "assistant", content: null, tool_calls: [{ id, type: "function", function: call }] },
      { role: "tool", tool_call_id: id, content: PRINTED },
    ];
  },
  messages: (id: string) => [
    { role: "assistant", content: [{ type: "tool_use", id, name: "read_file", input: { path: id } }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: PRINTED }] },
  ],
};
const agentTool = {
  chat: (name: string) => ({
    type: "function",
    function: { name, description: SOURCE.slice(0, 400), parameters: PARAMETERS },
  }),
  messages: (name: string) => ({ name, description: SOURCE.slice(0, 400), input_schema: PARAMETERS }),
};

/** As coding agents send them: 20 tools, then source code until the body has this size. */
export function agentBody(
  voice: keyof typeof agentTurn,
  kilobytes: number,
  model = voice === "chat" ? "bench" : "native",
): string {
  const tools = Array.from({ length: 20 }, (_, i) => agentTool[voice](`tool_${i}`));
  const messages: object[] = [{ role: "user", content: "Why does the test fail?" }];
  const body = { model, max_tokens: 1_000, tools, messages };
  for (let turn = 0; JSON.stringify(body).length < kilobytes * 1_000; turn++)
    messages.push(...agentTurn[voice](`call_${turn}`));
  return JSON.stringify(body);
}

const agentRow = (voice: keyof typeof agentTurn, kilobytes: number): LoadRow => ({
  group: "agents",
  name: `${voice}, ${kilobytes} KB of an agent`,
  per: "request",
  shows: ["cpu", "latency"],
  only: PASSING,
  plan: ({ scale }) => ({
    path: voice === "chat" ? CHAT_PATH : VOICES.messages.path,
    body: agentBody(voice, kilobytes),
    connections: 4,
    requests: scale(1_500),
    stream: false,
  }),
});

const translatedAgentRow: LoadRow = {
  group: "translated",
  name: "messages, 99 KB of an agent",
  per: "request",
  shows: ["cpu", "latency"],
  only: TRANSLATING.translated,
  plan: ({ scale }) => ({
    path: VOICES.messages.path,
    body: agentBody("messages", 99, "bench"),
    connections: 4,
    // Of such a prompt claude-code-router counts the tokens, which takes it a tenth of a second.
    requests: scale(300),
    stream: false,
  }),
};

const loadRows: LoadRow[] = [
  {
    group: "chat",
    name: "chat, 64 connections",
    per: "request",
    shows: ["cpu", "p99", "memory"],
    only: PARSING,
    plan: ({ scale }) => chat(64, scale(15_000)),
  },
  {
    group: "chat",
    name: "chat paid in points, 64 connections",
    per: "request",
    shows: ["cpu"],
    inPoints: true,
    plan: ({ scale }) => chat(64, scale(15_000)),
  },
  {
    group: "chat",
    name: "chat, 8 connections",
    per: "request",
    shows: ["cpu", "p99"],
    only: PARSING,
    plan: ({ scale }) => chat(8, scale(15_000)),
  },
  {
    group: "latency",
    name: "chat, one at a time",
    per: "request",
    shows: ["latency"],
    plan: ({ scale }) => chat(1, scale(3_000)),
  },
  {
    group: "ttft",
    name: "stream, one at a time",
    per: "event",
    shows: ["firstEvent"],
    plan: ({ scale }) => ({
      path: CHAT_PATH,
      // The upstream ends these after two tokens.
      body: chatBody("hi", { stream: true, seed: 2 }),
      connections: 1,
      requests: scale(60),
      stream: true,
    }),
  },
  {
    group: "prompt",
    name: "chat, 64 KB prompt",
    per: "request",
    shows: ["cpu", "memory"],
    plan: ({ scale }) => chat(16, scale(4_000), LONG_PROMPT),
  },
  agentRow("chat", 68),
  agentRow("chat", 99),
  agentRow("chat", 372),
  agentRow("messages", 372),
  streams(100),
  streams(500),
  streams(1_000),
  ...voiceRows("responses", false),
  ...voiceRows("messages", false),
  translatedAgentRow,
  ...voiceRows("responses", true),
  ...voiceRows("messages", true),
  {
    group: "embeddings",
    name: "embeddings, 32 x 1536",
    per: "request",
    shows: ["cpu", "memory"],
    plan: ({ scale }) => ({
      path: "/v1/embeddings",
      body: JSON.stringify({ model: "bench", input: TEXTS }),
      connections: 8,
      requests: scale(1_000),
      stream: false,
    }),
  },
];

export const rows: Row[] = loadRows.map((row) => ({
  group: row.group,
  measure: (bench) => measure(row, bench),
}));
