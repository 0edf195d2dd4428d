import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { databaseOfRun } from "@model-gateway/testing/deployment.ts";
import { type BootOptions, PASSWORD } from "@model-gateway/testing/gateway.ts";
import {
  chunk,
  completion,
  DONE,
  type UpstreamHandler,
  usageChunk,
} from "@model-gateway/testing/upstream.ts";
import { openStorage } from "../../src/storage/index.ts";
import { bootInference, type InferenceBench, settled } from "./inference.ts";

/** 5 USD per million tokens of prompt, 30 of output; writes 20,000 tokens when nothing limits it. */
export const DEAR = "test-dear";
/** The same, but for what costs twice as much: an hour's cache, sound, and prompts of more than 2,000 tokens. */
export const PARTED = "test-parted";
/** The same price, by a name of those models that refuse `max_tokens`. */
export const NEWER_DEAR = `gpt-5-${DEAR}`;
const DEAR_OUTPUT_MAX = 20_000;
export const PRICES = {
  prices: [
    {
      ...{ match: DEAR, input: 5, output: 30, max_output_tokens: DEAR_OUTPUT_MAX, context_window: 200_000 },
      batch: { input: 2.5, output: 15 },
    },
    {
      match: PARTED,
      input: 5,
      output: 30,
      cache_write_1h: 10,
      audio_output: 60,
      long_prompts: [{ above_tokens: 2_000, input: 10, output: 60 }],
      max_output_tokens: DEAR_OUTPUT_MAX,
    },
    { match: "test-painter", per_image: { "1024x1024": 0.002, "hd/1024x1024": 0.004, "1792x1024": 0.008 } },
    { match: "test-voice", per_million_characters: 100 },
    { match: "test-ear", per_second: 0.001 },
    { match: "test-ranker", per_call: 0.001 },
    { match: "test-judge", per_call: 0.0005 },
  ],
};
/** Models that are not priced by the token. */
const WORKERS = ["test-painter", "test-voice", "test-ear", "test-ranker", "test-judge"];
/** The free tier's dollar. */
export const QUOTA_USD = 1;
const QUOTA = { nanoUsd: 1e9, tokens: 100_000 };

export const costUsd = ({ prompt_tokens, completion_tokens }: Tokens): number =>
  (prompt_tokens * 5 + completion_tokens * 30) / 1e6;

interface Tokens {
  prompt_tokens: number;
  completion_tokens: number;
}

export interface Spender {
  userId: string;
  token: string;
  key: string;
  /** `POST /v1/chat/completions` of the dear model. */
  chat(body?: Record<string, unknown>, init?: { signal?: AbortSignal; key?: string }): Promise<Response>;
  post(path: string, body: unknown, init?: { signal?: AbortSignal; key?: string }): Promise<Response>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into rows freely
  rows(): Promise<any[]>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
  wallet(): Promise<any>;
  /** What all rows together cost, in dollars. */
  charged(): Promise<number>;
}

export interface SpendingBench extends InferenceBench {
  /** What the upstream wrote, by its own count. */
  readonly servedUsd: number;
  /** Someone on the free tier, with points in the wallet and perhaps without quota. */
  spender(name: string, options?: { points?: number; drained?: boolean }): Promise<Spender>;
}

/** Counts and writes like a server that does what it is asked: n answers, each as long as it may be. */
export function honestUpstream(serve: (tokens: Tokens) => void): UpstreamHandler {
  return async ({ json, text }, reply) => {
    const limit = Math.max(json.max_tokens ?? 0, json.max_completion_tokens ?? 0) || DEAR_OUTPUT_MAX;
    const usage = {
      prompt_tokens: Math.ceil(text.length / 4),
      completion_tokens: limit * (json.n ?? 1),
      total_tokens: 0,
    };
    usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
    serve(usage);
    if (!json.stream) return reply.json(completion("ok", { usage }));
    const words = " word".repeat(Math.min(usage.completion_tokens, 2_000));
    await reply.stream([
      chunk({ delta: { role: "assistant", content: "" } }),
      chunk({ delta: { content: words } }),
      chunk({ finish_reason: "length" }),
      usageChunk(usage),
      DONE,
    ]);
  };
}

/** A gateway whose upstream says what it served, so that the books can be compared with it. */
export async function bootSpending(options: BootOptions = {}): Promise<SpendingBench> {
  let servedUsd = 0;
  const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), "gateway-spending-"));
  const pricingFile = join(dataDir, "prices.json");
  writeFileSync(pricingFile, JSON.stringify(PRICES));
  // It is money that these tests are about, not requests a minute.
  const databaseUrl = options.config?.databaseUrl ?? (await databaseOfRun(dataDir));
  const storage = await openStorage({ dataDir, databaseUrl });
  await storage.run("UPDATE billing_tiers SET rpm = 1000000");
  await storage.close();
  const bench = await bootInference({
    ...options,
    dataDir,
    config: { pricingFile, trustedProxies: ["127.0.0.1"], ...options.config },
    upstream: { models: [DEAR, NEWER_DEAR, PARTED, "homemade", ...WORKERS] },
  });
  bench.upstream.answer(
    honestUpstream((tokens) => {
      servedUsd += costUsd(tokens);
    }),
  );
  const { db } = bench.app.rooms.usage.store;

  async function drain(userId: string): Promise<void> {
    const month = new Date().toISOString().slice(0, 7);
    for (const project of ["", "default"]) {
      await db.run(
        `INSERT INTO usage_months (user_id, month, project, requests, tokens, cost_nano_usd, quota_tokens,
           quota_cost_nano_usd, key_quota_tokens, key_quota_cost_nano_usd)
         VALUES ($1, $2, $3, 1, $4, $5, $4, $5, $4, $5)`,
        [userId, month, project, QUOTA.tokens, QUOTA.nanoUsd],
      );
    }
  }

  /** From an address of its own, since only so many accounts may be made from one. */
  async function register(name: string): Promise<string> {
    const params = { email: `${name}@example.com`, password: PASSWORD };
    const answer = await fetch(`${bench.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-forwarded-for": `10.${[0, 0, 0].map(() => Math.floor(Math.random() * 256)).join(".")}`,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.register", params }),
    });
    const { result, error } = (await answer.json()) as {
      result?: { access_token: string };
      error?: { message: string };
    };
    if (!result) throw new Error(`auth.register: ${error?.message}`);
    return result.access_token;
  }

  return {
    ...bench,
    get servedUsd() {
      return servedUsd;
    },
    async spender(name, { points = 0, drained = false } = {}) {
      const token = await register(name);
      const { id: userId } = await bench.rpc("auth.me", {}, token);
      if (drained) await drain(userId);
      if (points > 0) {
        const { ledger } = bench.app.rooms;
        const order = { points, note: null, actor: userId };
        await ledger.transaction((tx) => ledger.topup(tx, { type: "user", id: userId }, order));
      }
      const { key: own } = await bench.rpc("keys.create", { name: "k" }, token);
      const post: Spender["post"] = (path, body, { signal, key = own } = {}) =>
        bench.post(path, body, { headers: { authorization: `Bearer ${key}` }, ...(signal && { signal }) });
      const rows = async () => {
        await settled(bench);
        return (await bench.rpc("usage.list", { limit: 200 }, token)).records;
      };
      return {
        userId,
        token,
        key: own,
        post,
        chat: (body = {}, init) =>
          post(
            "/v1/chat/completions",
            { model: DEAR, messages: [{ role: "user", content: "hi there" }], ...body },
            init,
          ),
        rows,
        wallet: async () => {
          await settled(bench);
          return bench.rpc("ledger.self", {}, token);
        },
        charged: async () =>
          (await rows()).reduce((sum: number, { cost }: { cost: number | null }) => sum + (cost ?? 0), 0),
      };
    },
  };
}
