/** Chats through a pool of backends of which some fail, and what the clients notice of it. */
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { bootInference } from "../support/inference.ts";

interface Waits {
  p50: number;
  p99: number;
}

export interface RouteChaosResult {
  chats: number;
  failed: number;
  /** What clients waited, start to end of an answer: before anything failed, and once the failures were known. */
  calmMs: Waits;
  knownMs: Waits;
  /** The difference. */
  addedMs: Waits;
}

const AT_ONCE = 8;
/** A tier lets each key make a thousand requests a minute. */
const CHATS_PER_KEY = 900;
/** Until then every backend serves. */
const CALM_SHARE = 0.25;
/** By then each of the broken ones has failed often enough to be known. */
const KNOWN_AFTER_SHARE = 0.5;
/** The first ones find an empty cache and no connections. */
const WARM_UP_CHATS = 200;

function waitsOf(waitedMs: number[]): Waits {
  waitedMs.sort((a, b) => a - b);
  const at = (share: number) => rounded(waitedMs[Math.floor(waitedMs.length * share)] ?? 0);
  return { p50: at(0.5), p99: at(0.99) };
}
const rounded = (ms: number): number => Math.round(ms * 10) / 10;

/**
 * Chats to one route with four backends: one is killed on the way, one freezes, one answers 429, and one serves.
 * Half of them stream.
 */
export async function runRouteChaos(chats: number): Promise<RouteChaosResult> {
  const bench = await bootInference();
  const [killed, frozen, limited] = ["a", "b", "c"].map((id) => startUpstream({ models: [id] }));
  try {
    for (const [name, upstream] of Object.entries({ killed, frozen, limited }))
      await bench.addBackend({ name, type: "external", url: upstream!.url });
    const targets = ["m", "a", "b", "c"].map((model) => ({ model }));
    await bench.rpc("routes.set", { name: "route", targets, begin_within_seconds: 1 }, bench.token);
    const keys: string[] = [];
    for (let i = 0; i * CHATS_PER_KEY < chats; i++)
      keys.push((await bench.rpc("keys.create", { name: `chaos ${i}` }, bench.token)).key);

    const calm: number[] = [];
    const known: number[] = [];
    const calmChats = Math.floor(chats * CALM_SHARE);
    let failed = 0;
    let begun = 0;
    const one = async (i: number) => {
      if (i === calmChats) killed!.stop();
      if (i === calmChats + 20) {
        frozen!.answer(() => new Promise(() => {}));
        frozen!.listing(() => new Promise(() => {}));
      }
      if (i === calmChats + 40) limited!.answer((_, reply) => reply.json({ error: "slow down" }, 429));
      const startedMs = performance.now();
      const stream = i % 2 === 0;
      const messages = [{ role: "user", content: `chat ${i}` }];
      const headers = { authorization: `Bearer ${keys[Math.floor(i / CHATS_PER_KEY)]}` };
      const answer = await bench.chat({ model: "route", stream, messages }, { headers });
      const text = await answer.text();
      const isWhole = stream ? text.endsWith("data: [DONE]\n\n") : text.includes(`chat ${i}`);
      if (answer.status !== 200 || !isWhole) failed++;
      const waitedMs = performance.now() - startedMs;
      if (i >= WARM_UP_CHATS && i < calmChats) calm.push(waitedMs);
      if (i >= chats * KNOWN_AFTER_SHARE) known.push(waitedMs);
    };
    const worker = async () => {
      while (begun < chats) await one(begun++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    const [calmMs, knownMs] = [waitsOf(calm), waitsOf(known)];
    const addedMs = { p50: rounded(knownMs.p50 - calmMs.p50), p99: rounded(knownMs.p99 - calmMs.p99) };
    return { chats, failed, calmMs, knownMs, addedMs };
  } finally {
    for (const upstream of [killed, frozen, limited]) upstream?.stop();
    await bench.stop();
  }
}
