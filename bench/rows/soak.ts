import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { startGateway } from "../lib/gateway.ts";
import { rssMb, stop } from "../lib/processes.ts";

const SOAK_MS = 60_000;
const QUICK_SOAK_MS = 15_000;
const SETTLED_AFTER_MS = 10_000;
const SAMPLE_MS = 250;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Streams without end on a fresh process, two thirds of them left by their clients after a few tokens. */
async function measure({ upstreamPort, quick }: Bench) {
  const samples = new Samples("soak");
  const durationMs = quick ? QUICK_SOAK_MS : SOAK_MS;
  const gateway = await startGateway({ upstreamPort, name: "soak" });
  const load = runLoad(gateway, {
    path: CHAT_PATH,
    body: chatBody("hi", { stream: true, seed: 1 }),
    connections: 200,
    requests: Number.MAX_SAFE_INTEGER,
    durationMs,
    stream: true,
    leaveAfterEvents: 5,
  });
  const seen: { afterMs: number; mb: number }[] = [];
  const beganAt = performance.now();
  while (performance.now() - beganAt < durationMs) {
    await Bun.sleep(SAMPLE_MS);
    seen.push({ afterMs: performance.now() - beganAt, mb: rssMb(gateway.pid) });
  }
  const { requests, left, errors } = await load;
  await stop(gateway.pid);
  if (errors > 0) throw new Error(`${errors} streams of the soak failed`);
  console.log(`  ${requests} streams were read to their end, ${left} were left`);
  // A second's mean: the collector makes single readings jump.
  const around = (ms: number) =>
    mean(seen.filter(({ afterMs }) => afterMs > ms - 1_000 && afterMs <= ms).map(({ mb }) => mb));
  const [early, late] = [around(SETTLED_AFTER_MS), around(durationMs)];
  const title = `soak of ${durationMs / 1000} s`;
  samples.add("gateway", `${title}, memory after 10 s`, "MB", early);
  samples.add("gateway", `${title}, memory at the end`, "MB", late);
  samples.add("gateway", `${title}, most memory`, "MB", Math.max(...seen.map(({ mb }) => mb)));
  samples.add("gateway", `${title}, growth after 10 s`, "%", (late / early - 1) * 100);
  return samples.figures;
}

export const rows: Row[] = [{ group: "soak", measure }];
