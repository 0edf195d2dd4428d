import { join } from "node:path";
import { bundle, MAIN_FILE } from "../../scripts/packages/bundle.ts";
import { gateway } from "../../scripts/packages/programs.ts";
import type { Bench, Row } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { launchGateway } from "../lib/gateway.ts";
import { startPortkey } from "../lib/portkey.ts";
import { rssMb, stop } from "../lib/processes.ts";
import { startRouter } from "../lib/router.ts";
import { folder, type Peer, startBareProxy, startNginx } from "../lib/targets.ts";

const REST_MS = 12_000;

/** The moment after a start does not count as rest: what the start itself needed is given back within ten seconds. */
async function memoryAtRest(pid: number): Promise<number> {
  await Bun.sleep(REST_MS);
  return rssMb(pid);
}

/**
 * Everything once more, beside the ones that the other rows use. The gateway is measured as the program that its npm
 * package holds, and from source.
 */
async function measure({ targets, upstreamPort, quick }: Bench) {
  const samples = new Samples("start");
  const built = join(folder, "built");
  await bundle(gateway, built);
  const program = [join(built, MAIN_FILE), "serve"];
  const start: Record<Peer, () => Promise<{ pid: number; startedMs: number } | null>> = {
    nginx: () => startNginx(upstreamPort),
    bare: () => startBareProxy(upstreamPort),
    parsing: () => startBareProxy(upstreamPort, "parsing"),
    portkey: () => startPortkey(upstreamPort),
    router: () => startRouter(upstreamPort),
    gateway: () => launchGateway({ name: "start", program }),
  };
  // Only the gateway's first start creates its database.
  const first = await launchGateway({ name: "start", program });
  await stop(first.pid);
  samples.add("gateway", "very first start to healthy", "ms", first.startedMs);
  for (let round = 0; round < (quick ? 2 : 5); round++) {
    for (const { peer } of targets) {
      const started = await start[peer]();
      if (!started) continue;
      samples.add(peer, "start to healthy", "ms", started.startedMs);
      samples.add(peer, "memory at rest", "MB", await memoryAtRest(started.pid));
      await stop(started.pid);
    }
    const source = await launchGateway({ name: "start" });
    samples.add("gateway", "start to healthy from source", "ms", source.startedMs);
    samples.add("gateway", "memory at rest from source", "MB", await memoryAtRest(source.pid));
    await stop(source.pid);
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "start", measure }];
