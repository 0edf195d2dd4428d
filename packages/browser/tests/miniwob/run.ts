/**
 * MiniWoB++ (github.com/Farama-Foundation/miniwob-plusplus, folder miniwob/html) played by snapshots.
 * `bun packages/browser/tests/miniwob/run.ts <folder> [--seeds 3] [--from 1] [--only <text>]` prints what each task came to.
 */
import { existsSync, readdirSync } from "node:fs";
import { join, normalize } from "node:path";
import { parseArgs } from "node:util";
import { McpClient } from "../mcp-client.ts";
import { Player } from "./player.ts";
import { tasks } from "./tasks.ts";

/** Longer than the longest episode, after which a page gives its own verdict. */
const episodeMsMax = 45_000;

/** The pages as they are, but for the seed of their random numbers, which is taken from the address. */
export function serveMiniwob(dir: string): { url: string; stop(): Promise<void> } {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const { pathname, searchParams } = new URL(request.url);
      const file = Bun.file(join(dir, normalize(decodeURIComponent(pathname))));
      if (!(await file.exists())) return new Response(null, { status: 404 });
      if (!pathname.endsWith(".html")) return new Response(file);
      const seed = `<script>Math.seedrandom(${JSON.stringify(searchParams.get("seed"))})</script>`;
      const html = (await file.text()).replace(/<script[^>]*core\.js"[^>]*><\/script>/, (tag) => tag + seed);
      return new Response(html, { headers: { "content-type": "text/html" } });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}

export const taskNames = (dir: string) =>
  readdirSync(join(dir, "miniwob"))
    .filter((name) => name.endsWith(".html"))
    .map((name) => name.slice(0, -".html".length))
    .toSorted();

export interface Episode {
  /** What the page gave for it, from -1 to 1; null when it gave nothing. */
  reward: number | null;
  problem?: string;
}

export async function playEpisode(
  client: McpClient,
  base: string,
  task: string,
  seed: string,
): Promise<Episode> {
  const player = new Player(client);
  const solve = tasks[task];
  if (!solve) return { reward: null, problem: "no strategy" };
  await player.call("navigate", { url: `${base}/miniwob/${task}.html?seed=${seed}` });
  await player.call("click", { target: "text=START" });
  const until = performance.now() + episodeMsMax;
  let problem: string | undefined;
  try {
    await solve(player);
  } catch (error) {
    problem = (error as Error).message;
  }
  let { reward } = await player.look();
  while (reward === "-" && performance.now() < until && !problem) {
    await player.wait(200);
    ({ reward } = await player.look());
  }
  return { reward: reward === "-" ? null : Number(reward), problem };
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seeds: { type: "string", default: "3" },
      from: { type: "string", default: "1" },
      only: { type: "string", default: "" },
    },
  });
  const dir = positionals[0] ?? process.env.MINIWOB_DIR ?? "";
  if (!existsSync(join(dir, "miniwob")))
    throw new Error("Name the folder miniwob/html of a checkout of MiniWoB++.");
  const site = serveMiniwob(dir);
  const client = new McpClient();
  await client.initialize();
  const seeds = Array.from({ length: Number(values.seeds) }, (_, i) => `seed-${i + Number(values.from)}`);
  let solved = 0;
  let all = 0;
  for (const task of taskNames(dir).filter((name) => name.includes(values.only))) {
    const rewards: string[] = [];
    let wins = 0;
    for (const seed of seeds) {
      const { reward, problem } = await playEpisode(client, site.url, task, seed);
      if (reward !== null && reward > 0) wins++;
      rewards.push(`${reward ?? "none"}${problem ? ` (${problem})` : ""}`);
    }
    all++;
    if (wins === seeds.length) solved++;
    console.log(
      `${wins === seeds.length ? "ok  " : "    "} ${wins}/${seeds.length} ${task}: ${rewards.join(" | ")}`,
    );
  }
  console.log(`${solved} of ${all} tasks on all ${seeds.length} seeds`);
  await client.end();
  await site.stop();
}
