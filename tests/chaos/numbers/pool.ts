import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { completion } from "@model-gateway/testing/upstream.ts";
import { ADMIN_TOKEN } from "../../cluster/support/cluster.ts";
import { openPool, openStage, pointsOf, type Stage } from "../../cluster/support/stage.ts";
import type { Outcome } from "./outcome.ts";

const INSTANCES = 3;
const REQUESTS = 1_000;
const POOL_POINTS = 10;
/** Only what is answered costs something, and 100 points are a dollar: ten tokens are one point. */
const PRICES = { prices: [{ match: "m", input: 0, output: 1_000 }] };
const TOKENS = 10;

/** All at once on a pool that has enough for ten of them, which has nothing else to fall back on. */
async function oneRound(
  stage: Stage,
  owner: string,
  round: number,
): Promise<{ passed: number; odd: string[] }> {
  const { instances, admin } = stage;
  const pool = await openPool(instances[round % INSTANCES]!, { admin, owner, points: POOL_POINTS });
  const body = JSON.stringify({
    model: "m",
    max_tokens: TOKENS,
    messages: [{ role: "user", content: "hi" }],
  });
  const headers = { authorization: `Bearer ${pool.groupKey}`, "content-type": "application/json" };
  const odd: string[] = [];
  let passed = 0;
  await Promise.all(
    Array.from({ length: REQUESTS }, async (_, i) => {
      const { url } = instances[i % INSTANCES]!;
      const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
      const text = await response.text();
      if (response.status === 200) passed++;
      else if (response.status !== 402) odd.push(`${response.status} ${text.slice(0, 200)}`);
    }),
  );
  const { left, paid } = await settled(stage, pool.groupId);
  if (left !== 0 || paid !== POOL_POINTS) odd.push(`the pool has ${left} points left and paid ${paid}`);
  return { passed, odd };
}

/** What the pool has, once everything is settled, which takes up to a second. */
async function settled(stage: Stage, groupId: string) {
  for (const deadline = Date.now() + 10_000; ; await Bun.sleep(100)) {
    const points = await pointsOf(stage, groupId);
    if (points.left + points.paid === POOL_POINTS && points.left === 0) return points;
    if (Date.now() > deadline) return points;
  }
}

/** `times` rounds of 1,000 requests at once over three instances, on a pool for ten. */
export async function measurePool(times: number, say: (line: string) => void): Promise<Outcome> {
  const dir = mkdtempSync(join(tmpdir(), "gateway-pool-"));
  const SERVICE_PRICING_FILE = join(dir, "prices.json");
  writeFileSync(SERVICE_PRICING_FILE, JSON.stringify(PRICES));
  const stage = await openStage({ instances: INSTANCES, env: { SERVICE_PRICING_FILE } });
  try {
    const usage = { prompt_tokens: 9, completion_tokens: TOKENS, total_tokens: 9 + TOKENS };
    stage.upstream.answer((_, reply) => reply.json(completion("hi", { usage })));
    const owner = await stage.instances[0]!.signUp("bob");
    const plan = { user_email: "bob@example.com", tier: "pro" };
    await stage.instances[0]!.rpc("billing.plan.set", plan, ADMIN_TOKEN);
    const counts = new Map<number, number>();
    const odd: string[] = [];
    for (let round = 0; round < times; round++) {
      const result = await oneRound(stage, owner, round);
      counts.set(result.passed, (counts.get(result.passed) ?? 0) + 1);
      odd.push(...result.odd);
      if ((round + 1) % 10 === 0) say(`${round + 1} rounds`);
    }
    const said = (words: string) =>
      stage.instances.reduce((sum, { log }) => sum + log.split(words).length - 1, 0);
    const alone = `${said("counts limits and holds locally")} times an instance counted alone, ${said("admitted unchecked")} requests were admitted unchecked`;
    const lines = [...counts].map(
      ([passed, rounds]) => `${rounds} of ${times} rounds: ${passed} requests passed`,
    );
    return {
      lines: [...lines, alone, ...odd.slice(0, 5)],
      isSound: counts.get(POOL_POINTS) === times && odd.length === 0,
    };
  } finally {
    await stage.end();
    rmSync(dir, { recursive: true, force: true });
  }
}
