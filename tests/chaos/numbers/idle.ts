import { rssMb } from "../../../bench/lib/processes.ts";
import { kinds, openMany } from "../../../bench/rows/idle.ts";
import { Instance } from "../../cluster/support/cluster.ts";
import type { Outcome } from "./outcome.ts";

/** Opened first and not counted: what the first connections of a process cost once is not theirs. */
const FIRST_CONNECTIONS = 1_000;

/** So many connections of each kind on a process of its own, which still answers, and what they take. */
export async function measureIdle(count: number, say: (line: string) => void): Promise<Outcome> {
  const lines: string[] = [];
  let isSound = true;
  for (const [kind, head] of Object.entries(kinds)) {
    const instance = new Instance({ databaseUrl: null, redisUrl: null });
    try {
      await instance.start();
      const token = await instance.signUp("ada");
      const port = Number(new URL(instance.url).port);
      const closers = await openMany(port, FIRST_CONNECTIONS, () => head(token));
      const before = rssMb(instance.pid);
      closers.push(...(await openMany(port, count - FIRST_CONNECTIONS, () => head(token))));
      const kilobytes = ((rssMb(instance.pid) - before) * 1_024) / (count - FIRST_CONNECTIONS);
      const open = await instance.metric("gateway_connections");
      const beganMs = performance.now();
      const { ok } = await fetch(`${instance.url}/v1/health`);
      const tookMs = performance.now() - beganMs;
      lines.push(
        `${kind}: ${open} connections open, ${kilobytes.toFixed(1)} KB each, another request took ${tookMs.toFixed(1)} ms`,
      );
      say(lines.at(-1)!);
      isSound &&= open >= count && ok;
      for (const close of closers) close();
    } finally {
      await instance.remove();
    }
  }
  return { lines, isSound };
}
