import { until } from "@model-gateway/testing/until.ts";
import { chunk, startUpstream } from "@model-gateway/testing/upstream.ts";
import { ADMIN_TOKEN, Instance } from "../../cluster/support/cluster.ts";
import { type Outcome, quantile } from "./outcome.ts";

const AT_ONCE = 10;
const PIECE_EVERY_MS = 5;
const CLOSED_WITHIN_MS = 100;
const KEYS = 10;

/** Clients leave at every stage of an answer that only the gateway can end; how soon its upstream hears of it. */
export async function measureAborts(aborts: number): Promise<Outcome> {
  const closedMs = new Map<number, number>();
  const opOf = new Map<number, number>();
  const received = new Set<number>();
  const upstream = startUpstream({
    tap: (event) => {
      if (event.event === "request") {
        const op = Number(/op-(\d+)/.exec(Buffer.from(event.bytes).toString())?.[1]);
        opOf.set(event.id, op);
        received.add(op);
      } else if (event.event === "ended") closedMs.set(opOf.get(event.id)!, performance.now());
    },
    handler: async (request, reply) => {
      if (request.json.stream) reply.head(200, { "content-type": "text/event-stream" });
      while (request.closedAtMs === null) {
        if (request.json.stream) await reply.write(chunk({ delta: { content: "word " } }));
        await Bun.sleep(PIECE_EVERY_MS);
      }
    },
  });
  const instance = new Instance({ databaseUrl: null, redisUrl: null });
  try {
    await instance.start();
    const admin = await instance.signUp("ada");
    await instance.rpc(
      "billing.plan.set",
      { user_email: "ada@example.com", tier: "enterprise" },
      ADMIN_TOKEN,
    );
    const backend = { type: "external_api", name: "up", url: `${upstream.url}/v1` };
    await instance.admin("POST", "/api/admin/backends", backend);
    await until("it is routable", async () => (await instance.models()).includes("m"));
    // A tier lets each key make a thousand requests a minute.
    const keys = await Promise.all(
      Array.from(
        { length: KEYS },
        async (_, i) => (await instance.rpc("keys.create", { name: `${i}` }, admin)).key,
      ),
    );
    const tookMs: number[] = [];
    let next = 0;
    const leave = async (op: number) => {
      const gone = new AbortController();
      const pieces = (op % 7) - 1;
      const asked = fetch(`${instance.url}/v1/chat/completions`, {
        method: "POST",
        keepalive: false,
        signal: gone.signal,
        headers: { authorization: `Bearer ${keys[op % KEYS]}`, "content-type": "application/json" },
        body: JSON.stringify({
          model: "m",
          stream: pieces >= 0,
          messages: [{ role: "user", content: `op-${op} .` }],
        }),
      });
      asked.catch(() => {});
      await until("the upstream has it", () => received.has(op));
      if (pieces >= 0) {
        const reader = (await asked).body!.getReader();
        for (let i = 0; i < pieces; i++) await reader.read();
      }
      const leftMs = performance.now();
      gone.abort();
      await until("the upstream is closed", () => closedMs.has(op));
      tookMs.push(closedMs.get(op)! - leftMs);
    };
    const lane = async () => {
      while (next < aborts) await leave(next++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    const p99 = quantile(tookMs, 0.99);
    const figures = [quantile(tookMs, 0.5), p99, Math.max(...tookMs)].map((ms) => ms.toFixed(1));
    return {
      lines: [
        `${tookMs.length} aborts: upstream closed after p50 ${figures[0]}, p99 ${figures[1]}, at most ${figures[2]} ms`,
      ],
      isSound: p99 <= CLOSED_WITHIN_MS && closedMs.size === aborts,
    };
  } finally {
    await instance.remove();
    upstream.stop();
  }
}
