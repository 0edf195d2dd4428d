import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { type Measured, Samples } from "../lib/figures.ts";
import { cpuUs } from "../lib/processes.ts";
import type { Target } from "../lib/targets.ts";
import { agentBody } from "./loads.ts";

const TURNS = 50;
const KILOBYTES_PER_TURN = 8;
const CONNECTIONS = 4;
/** Small chats that others send meanwhile. */
const OTHERS_PER_SECOND = 20;
/** Usage is written within half a second. */
const SETTLED_MS = 800;

const compared = ({ targets }: Bench) =>
  targets.filter(({ peer }) => peer === "bare" || peer === "gateway") as (Target & { peer: Measured })[];

const plan = (body: string, requests: number) => ({
  path: CHAT_PATH,
  body,
  connections: CONNECTIONS,
  requests,
  stream: false,
});

/** A history that grows to 400 KB and is sent whole with every turn: what a kilobyte costs early and late. */
async function measureGrowth(bench: Bench) {
  const samples = new Samples("session");
  const bodies = Array.from({ length: TURNS }, (_, turn) =>
    agentBody("chat", (turn + 1) * KILOBYTES_PER_TURN),
  );
  const halves = { "turns 1 to 25": bodies.slice(0, TURNS / 2), "turns 26 to 50": bodies.slice(TURNS / 2) };
  for (let round = 0; round <= bench.rounds; round++)
    for (const target of compared(bench))
      for (const [name, half] of Object.entries(halves)) {
        const before = cpuUs(target.pid);
        const turns = { ...plan("", bench.scale(50) * half.length), bodies: half };
        const { errors, sentBytes } = await runLoad(target, turns);
        if (errors > 0) throw new Error(`a session, ${target.peer}: ${errors} requests failed`);
        await Bun.sleep(SETTLED_MS);
        const us = (cpuUs(target.pid) - before) / (sentBytes / 1_000);
        // The first round warms up.
        if (round > 0) samples.add(target.peer, `a session of ${TURNS} turns, ${name}, CPU per KB`, "µs", us);
      }
  return samples.figures;
}

/** Small chats at even distances, alone and beside large ones. */
async function measureOthers(bench: Bench) {
  const samples = new Samples("session");
  const small = { path: CHAT_PATH, body: chatBody("hi"), connections: 8, stream: false };
  const large = plan(agentBody("chat", 372), bench.scale(2_000));
  for (let round = 0; round < bench.rounds; round++)
    for (const target of compared(bench))
      for (const [name, work] of Object.entries({ alone: null, "beside 372 KB": large })) {
        const working = work && runLoad(target, work);
        const requests = bench.scale(200);
        const report = await runLoad(target, { ...small, requests, perSecond: OTHERS_PER_SECOND });
        await working;
        samples.add(target.peer, `a small chat ${name}, p50`, "ms", report.p50Us / 1_000);
        samples.add(target.peer, `a small chat ${name}, p99`, "ms", report.p99Us / 1_000);
      }
  return samples.figures;
}

export const rows: Row[] = [
  { group: "session", measure: measureGrowth },
  { group: "session", measure: measureOthers },
];
