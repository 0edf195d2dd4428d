/** One running tool: started, asked, and put away with everything that it has started. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Contestant } from "./contestants.ts";
import { type CommandLine, McpClient, type ToolReply } from "./mcp-client.ts";
import { endAll, pidsOf } from "./processes.ts";

const closeTimeoutMs = 3_000;

export interface RunningTool {
  client: McpClient;
  /** Its own temporary folder, so that what it leaves there is seen. */
  tempDir: string;
  startMs: number;
}

export function must(reply: ToolReply, what: string): string {
  if (reply.isError) throw new Error(`${what}: ${reply.text.slice(0, 300)}`);
  return reply.text;
}

/** From the command line to the first page, as a client sees it. */
export async function openTool(
  contestant: Contestant,
  url: string,
  wrap: (start: CommandLine) => CommandLine = (start) => start,
): Promise<RunningTool> {
  const tempDir = mkdtempSync(join(tmpdir(), "bb-"));
  const start = contestant.start();
  const from = performance.now();
  const client = new McpClient(wrap({ ...start, env: { ...start.env, TMPDIR: tempDir } }));
  await client.initialize();
  must(await contestant.navigate(client, url), `${contestant.name} navigate`);
  return { client, tempDir, startMs: performance.now() - from };
}

/** Its own way out first, then by force. */
export async function closeTool({ client, tempDir }: RunningTool): Promise<void> {
  const { own, browsers } = pidsOf(client);
  client.child.stdin!.end();
  await Promise.race([
    new Promise((resolve) => client.child.once("exit", resolve)),
    Bun.sleep(closeTimeoutMs),
  ]);
  const late = pidsOf(client);
  endAll([...own, ...browsers, ...late.own, ...late.browsers]);
  rmSync(tempDir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
