import type { Bench, Row } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { launchGateway } from "../lib/gateway.ts";
import { startPortkey } from "../lib/portkey.ts";
import { rssMb, stop } from "../lib/processes.ts";
import { type Peer, startBareProxy, startNginx } from "../lib/targets.ts";

/** Everything once more, beside the ones that the other rows use. */
async function measure({ targets, upstreamPort, quick }: Bench) {
  const samples = new Samples("start");
  const start: Record<Peer, () => Promise<{ pid: number; startedMs: number } | null>> = {
    nginx: () => startNginx(upstreamPort),
    bare: () => startBareProxy(upstreamPort),
    portkey: () => startPortkey(upstreamPort),
    gateway: () => launchGateway({ name: "start" }),
  };
  // The gateway's first start also makes its database, which is none of the later ones'.
  const first = await launchGateway({ name: "start" });
  await stop(first.pid);
  samples.add("gateway", "very first start to healthy", "ms", first.startedMs);
  for (let round = 0; round < (quick ? 2 : 5); round++) {
    for (const { peer } of targets) {
      const started = await start[peer]();
      if (!started) continue;
      samples.add(peer, "start to healthy", "ms", started.startedMs);
      samples.add(peer, "memory at rest", "MB", rssMb(started.pid));
      await stop(started.pid);
    }
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "start", measure }];
