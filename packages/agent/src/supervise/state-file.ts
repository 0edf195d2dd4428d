/** What the node must remember across restarts: its id, and what it was asked to serve. */
import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ServingOptions } from "@model-gateway/protocol/agent.ts";
import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { z } from "zod";
import { describeError, errorCode, UsageError } from "../errors.ts";
import { readProcess } from "../guard/processes.ts";

const SavedDeployment = z.object({
  model_id: ModelId,
  stream_ids: z.array(z.string()).default([]),
  options: ServingOptions.default({}),
  port: z.int().nullable().default(null),
  /** Why it failed; null while it is served, or on its way. */
  failed: z.string().nullable().default(null),
  api_key: z.string(),
});
export type SavedDeployment = z.infer<typeof SavedDeployment>;

const State = z.object({
  node_id: z.string(),
  deployments: z.array(SavedDeployment).max(256).default([]),
  /** The program that uses this folder now, or used it last. */
  owner: z.object({ pid: z.int(), start_ticks: z.string() }).nullable().default(null),
});
type State = z.infer<typeof State>;

export class StateFile {
  readonly #path: string;
  readonly #state: State;

  /** Opens the folder's state, creating it the first time. Throws when another node program is using it. */
  constructor(dataDir: string) {
    try {
      mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    } catch (error) {
      throw new UsageError(`the data folder cannot be made: ${describeError(error)}`);
    }
    this.#path = join(dataDir, "state.json");
    this.#state = this.#read();
    const { owner } = this.#state;
    const running = owner && owner.pid !== process.pid ? readProcess(owner.pid) : null;
    if (owner && running && running.startTicks === owner.start_ticks && running.state !== "Z")
      throw new UsageError(
        `another node program (pid ${owner.pid}) uses ${dataDir}: stop it, or give this one its own --data-dir`,
      );
    this.#state.owner = { pid: process.pid, start_ticks: readProcess(process.pid)?.startTicks ?? "" };
    try {
      this.#write();
    } catch (error) {
      throw new UsageError(
        `the data folder cannot be written: ${describeError(error)}; choose another --data-dir`,
      );
    }
  }

  get nodeId(): string {
    return this.#state.node_id;
  }

  get deployments(): readonly SavedDeployment[] {
    return this.#state.deployments;
  }

  save(deployments: SavedDeployment[]): void {
    this.#state.deployments = deployments;
    this.#write();
  }

  #read(): State {
    let text: string;
    try {
      text = readFileSync(this.#path, "utf8");
    } catch (error) {
      if (errorCode(error) !== "ENOENT")
        throw new UsageError(`the node's state cannot be read: ${describeError(error)}`);
      return { node_id: crypto.randomUUID(), deployments: [], owner: null };
    }
    try {
      return State.parse(JSON.parse(text));
    } catch (error) {
      throw new UsageError(
        `${this.#path} is damaged (${describeError(error).slice(0, 200)}): delete it to start afresh`,
      );
    }
  }

  #write(): void {
    const temporary = `${this.#path}.new`;
    writeFileSync(temporary, `${JSON.stringify(this.#state, null, 2)}\n`, { mode: 0o600 });
    chmodSync(temporary, 0o600);
    renameSync(temporary, this.#path);
  }
}
