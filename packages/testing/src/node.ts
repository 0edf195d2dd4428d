/** The node program as an operator starts it, in a folder of its own, with the test's engine configured. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { markedProcesses, readProcess } from "@model-gateway/agent/guard/processes.ts";
import { until } from "./until.ts";

const AGENT = join(import.meta.dir, "..", "..", "agent");
const PROGRAM = join(AGENT, "src", "main.ts");
const GPUS = join(AGENT, "tests", "fixtures", "nvidia-smi", "mixed.csv");
export const ENGINE = join(import.meta.dir, "chat-engine.ts");
/** What a node signs in with unless the test gives it another token. */
export const NODE_TOKEN = "node-token";

export interface Workplace {
  dir: string;
  dataDir: string;
  crashFile: string;
  configFile: string;
  /** Comes first in the node's PATH, so that every machine has the same GPUs. */
  binDir: string;
  remove(): void;
}

/** `models` is TOML for the catalogue. */
export function prepareWorkplace(options: { models: string; top?: string }): Workplace {
  const dir = mkdtempSync(join(tmpdir(), "agent-node-"));
  const crashFile = join(dir, "crash-now");
  const configFile = join(dir, "agent.toml");
  const binDir = join(dir, "bin");
  mkdirSync(binDir);
  writeFileSync(join(binDir, "nvidia-smi"), `#!/bin/sh\ncat '${GPUS}'\n`, { mode: 0o755 });
  const command = [process.execPath, ENGINE];
  const args = ["--model", "{model_path}", "--alias", "{model_id}", "--host", "{bind}", "--port", "{port}"];
  writeFileSync(
    configFile,
    `default_engine = "test"
restart_delay_s = 0.1
restarts_max = 3
${options.top ?? ""}
[engines.test]
command = ${JSON.stringify([...command, ...args, "--load-ms", "300", "--crash-file", crashFile])}
env = { ENGINE_KEY = "{api_key}" }
ready_timeout_s = 30
stop_grace_s = 3
[engines.missing]
command = ["no-such-engine-program", "{port}"]
${options.models}
`,
  );
  return {
    dir,
    dataDir: join(dir, "data"),
    crashFile,
    configFile,
    binDir,
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}

export interface RunningNode {
  pid: number;
  output(): string;
  exited: Promise<number>;
  kill(signal: NodeJS.Signals): void;
}

const started = new Set<RunningNode>();

export function startNode(options: {
  gateway: string;
  workplace: Workplace;
  token?: string;
  env?: Record<string, string | undefined>;
}): RunningNode {
  const { workplace } = options;
  const child = Bun.spawn(
    [
      process.execPath,
      PROGRAM,
      ...["--gateway", options.gateway, "--config", workplace.configFile, "--data-dir", workplace.dataDir],
    ],
    {
      env: {
        ...process.env,
        PATH: `${workplace.binDir}:${process.env.PATH}`,
        AGENT_TOKEN: options.token ?? NODE_TOKEN,
        ...options.env,
      },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
    },
  );
  let output = "";
  void (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stderr) output += decoder.decode(chunk, { stream: true });
  })();
  const node: RunningNode = {
    pid: child.pid,
    output: () => output,
    exited: child.exited,
    kill: (signal) => child.kill(signal),
  };
  started.add(node);
  void child.exited.then(() => started.delete(node));
  return node;
}

/** Ends every node that a test left running, and waits for it. */
export async function endNodes(): Promise<void> {
  const left = [...started];
  for (const node of left) node.kill("SIGTERM");
  await Promise.all(left.map(({ exited }) => exited));
}

export function isAlive(pid: number): boolean {
  const found = readProcess(pid);
  return found !== null && found.state !== "Z";
}

/** A process that has been killed still shows for a moment, without its environment. */
export async function untilEnded(...pids: number[]): Promise<void> {
  await until(`processes ${pids.join(", ")} have ended`, () => !pids.some(isAlive));
}

/** Engine processes of any node that uses this workplace. */
export async function enginesOf({ dataDir }: Workplace): Promise<number[]> {
  const state = (await Bun.file(join(dataDir, "state.json")).json()) as { node_id: string };
  return markedProcesses(`${state.node_id}/`);
}

export async function untilNoEngines(workplace: Workplace): Promise<void> {
  await until("no engine process is left", async () => (await enginesOf(workplace)).length === 0);
}
