import { join } from "node:path";
import type { Figure } from "./figures.ts";
import type { GatewayTarget } from "./gateway.ts";
import type { LoadPlan, LoadReport } from "./load.ts";
import type { Target } from "./targets.ts";

/** What a row of the bench is given. */
export interface Bench {
  /** Everything between clients and upstream, in the order in which they take turns. */
  targets: readonly Target[];
  gateway: GatewayTarget;
  upstreamPort: number;
  quick: boolean;
  rounds: number;
  /** Tokens of a stream of the upstream. */
  chunks: number;
  /** Fewer in a quick run. */
  scale(count: number): number;
}

export interface Row {
  /** What `--only` picks. */
  group: string;
  measure(bench: Bench): Promise<Figure[]>;
}

/** Runs a program of this folder with a plan and returns what it printed. */
export async function runPlan<Report>(file: string, plan: unknown): Promise<Report> {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, file)], {
    stdin: Buffer.from(JSON.stringify(plan)),
    stdout: "pipe",
    stderr: "inherit",
  });
  const text = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`${file} failed`);
  return JSON.parse(text) as Report;
}

export type Address = Pick<Target, "port" | "key" | "keys" | "headers">;

export const runLoad = ({ port, key, keys, headers }: Address, plan: Omit<LoadPlan, keyof Address>) =>
  runPlan<LoadReport>("load.ts", { ...plan, port, key, keys, headers });

export const CHAT_PATH = "/v1/chat/completions";
export const chatBody = (content: string, rest: object = {}) =>
  JSON.stringify({ model: "bench", messages: [{ role: "user", content }], ...rest });
