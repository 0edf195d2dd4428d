/**
 * Voice sessions at once, each sending audio frames over its own RPC socket and hearing them back over its own
 * event stream, against an upstream that returns every frame. Reports what was lost, CPU and memory.
 *
 *   bun bench/realtime.ts [sessions=200] [framesPerSecond=20] [seconds=20]
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cpuUs, rssMb, startCommand, startServer, stopAll, untilReady } from "./lib/processes.ts";

const [sessions = 200, framesPerSecond = 20, seconds = 20] = process.argv.slice(2).map(Number);
const ADMIN_TOKEN = "bench-admin-token-0123456789";
const PORT = 20_000 + Math.floor(Math.random() * 20_000);
const url = `http://127.0.0.1:${PORT}`;
/** 50 ms of 16 kHz PCM16. */
const AUDIO = Buffer.alloc(1_600, 7).toString("base64");
const SETTLE_MS = 3_000;

const dataDir = mkdtempSync(join(tmpdir(), "bench-realtime-"));
const upstream = await startServer("realtime-upstream.ts");
const gateway = startCommand([process.execPath, "packages/gateway/src/main.ts"], {
  SERVICE_PORT: String(PORT),
  SERVICE_DATA_DIR: dataDir,
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  SERVICE_LOG_LEVEL: "error",
});

async function post(path: string, body: unknown, bearer?: string) {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
    body: JSON.stringify(body),
  });
  return (await response.json()) as { result: Record<string, string>; error?: { message: string } };
}
async function rpc(method: string, params: unknown, bearer?: string) {
  const { result, error } = await post("/api/rpc", { jsonrpc: "2.0", id: 1, method, params }, bearer);
  if (error) throw new Error(`${method}: ${error.message}`);
  return result;
}

await untilReady("the gateway", async () => (await fetch(`${url}/healthz`)).ok);
const { access_token: token } = await rpc("auth.register", {
  email: "b@example.com",
  password: "bench password",
});
const backend = {
  type: "cloud-realtime",
  url: `http://127.0.0.1:${upstream.port}/api-ws/v1/realtime`,
  models: ["voice"],
};
await post("/api/admin/backends", backend, ADMIN_TOKEN);
await untilReady("the model", async () =>
  (await (await fetch(`${url}/v1/models`)).text()).includes('"voice"'),
);

let sent = 0;
let refused = 0;
let heard = 0;
const gapsMs: number[] = [];

/** Counts frames that come back and the longest silence between two of them. */
async function listen(streamSession: string): Promise<void> {
  const { body } = await fetch(`${url}/api/rpc/events?session=${streamSession}`);
  let last = 0;
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    const frames = Buffer.from(chunk).toString("latin1").split("response.audio.delta").length - 1;
    if (frames === 0) continue;
    heard += frames;
    const now = performance.now();
    if (last) gapsMs.push(now - last);
    last = now;
  }
}

const sockets: { socket: WebSocket; sessionId: string }[] = [];
for (let i = 0; i < sessions; i++) {
  const { session_id, stream_session } = await rpc("realtime.start", { model: "voice" }, token);
  void listen(stream_session!).catch(() => {});
  const socket = new WebSocket(`${url.replace("http", "ws")}/api/rpc?token=${token}`);
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = reject;
  });
  socket.onmessage = ({ data }) => {
    if (String(data).includes('"error"')) refused++;
  };
  sockets.push({ socket, sessionId: session_id! });
}

const cpuBefore = cpuUs(gateway.pid);
const rssBefore = rssMb(gateway.pid);
const frame = (sessionId: string) =>
  JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "realtime.event",
    params: { session_id: sessionId, event: { type: "input_audio_buffer.append", audio: AUDIO } },
  });
const texts = sockets.map(({ sessionId }) => frame(sessionId));
const beganAt = performance.now();
for (let round = 0; round < framesPerSecond * seconds; round++) {
  for (const [i, { socket }] of sockets.entries()) {
    socket.send(texts[i]!);
    sent++;
  }
  const dueAt = beganAt + ((round + 1) * 1_000) / framesPerSecond;
  await Bun.sleep(Math.max(0, dueAt - performance.now()));
}
const tookSeconds = (performance.now() - beganAt) / 1_000;
for (const deadline = Date.now() + SETTLE_MS; heard < sent - refused && Date.now() < deadline; )
  await Bun.sleep(20);

const report = {
  sessions,
  frames_per_second_each: framesPerSecond,
  seconds: Number(tookSeconds.toFixed(1)),
  frames_sent: sent,
  frames_refused: refused,
  frames_lost: sent - refused - heard,
  cpu_us_per_frame_both_ways: Math.round((cpuUs(gateway.pid) - cpuBefore) / sent),
  longest_gap_ms: Math.round(Math.max(...gapsMs)),
  rss_mb_before: Math.round(rssBefore),
  rss_mb_after: Math.round(rssMb(gateway.pid)),
};
console.table(report);
mkdirSync("bench/results", { recursive: true });
writeFileSync("bench/results/realtime.json", `${JSON.stringify(report, null, 2)}\n`);
for (const { socket } of sockets) socket.close();
await stopAll();
rmSync(dataDir, { recursive: true, force: true });
process.exit(report.frames_lost === 0 ? 0 : 1);
