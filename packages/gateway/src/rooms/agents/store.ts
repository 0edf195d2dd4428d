import { type Database, insertRow, upsertRow } from "../../storage/contract.ts";

export interface AgentRow {
  id: string;
  name: string;
  version: string;
  /** The node's last report about itself; null before its first connection. */
  host: string | null;
  created_at: string;
  last_seen_at: string | null;
}

interface Deployment {
  /** It may be served beside registered backends. */
  besideBackends: boolean;
  /** The node has served it since its deployment. */
  wasReady: boolean;
}
export type Deployments = ReadonlyMap<string, Deployment>;

/** A model that the gateway starts and ends itself; `serving` is JSON of ServingOptions. */
export interface ManagedModel {
  model_id: string;
  user_id: string;
  mode: "always" | "on_demand" | "off";
  idle_ms: number;
  minimum_ms: number;
  replicas_min: number;
  replicas_max: number;
  serving: string;
  used_ms: number;
  wanted_ms: number;
  started_ms: number;
}
/** Times that instances share: last used, last waited for, last started. */
export type NotedColumn = "used_ms" | "wanted_ms" | "started_ms";

const ONE = "WHERE agent_id = $1 AND model_id = $2";
const COLUMNS = "id, name, version, host, created_at, last_seen_at";

export class AgentStore {
  constructor(readonly db: Database) {}

  async insert(row: Pick<AgentRow, "id" | "name" | "version" | "created_at"> & { token_hash: string }) {
    await insertRow(this.db, "agents", row);
  }

  list(): Promise<AgentRow[]> {
    return this.db.all<AgentRow>(`SELECT ${COLUMNS} FROM agents ORDER BY name, id`);
  }

  get(id: string): Promise<AgentRow | null> {
    return this.db.get<AgentRow>(`SELECT ${COLUMNS} FROM agents WHERE id = $1`, [id]);
  }

  byTokenHash(tokenHash: string): Promise<{ id: string; name: string } | null> {
    return this.db.get("SELECT id, name FROM agents WHERE token_hash = $1", [tokenHash]);
  }

  /** Numbers a new connection above every earlier one of the node; null when the node is not registered. */
  async claimEpoch(
    id: string,
    { version, host, now }: { version: string; host: string; now: string },
  ): Promise<number | null> {
    const sql =
      "UPDATE agents SET epoch = epoch + 1, version = $2, host = $3, last_seen_at = $4 WHERE id = $1 RETURNING epoch";
    const row = await this.db.get<{ epoch: number }>(sql, [id, version, host, now]);
    return row?.epoch ?? null;
  }

  async seen(id: string, now: string): Promise<void> {
    await this.db.run("UPDATE agents SET last_seen_at = $2 WHERE id = $1", [id, now]);
  }

  async deployments(agentId: string): Promise<Deployments> {
    const sql = "SELECT model_id, beside_backends, was_ready FROM agent_deployments WHERE agent_id = $1";
    const rows = await this.db.all<{ model_id: string; beside_backends: unknown; was_ready: unknown }>(sql, [
      agentId,
    ]);
    return new Map(
      rows.map((row) => [
        row.model_id,
        { besideBackends: Boolean(row.beside_backends), wasReady: Boolean(row.was_ready) },
      ]),
    );
  }

  async recordDeployment(
    agentId: string,
    modelId: string,
    { besideBackends, now }: { besideBackends: boolean; now: string },
  ): Promise<void> {
    const key = { agent_id: agentId, model_id: modelId };
    const row = { ...key, beside_backends: besideBackends, was_ready: false, created_at: now };
    const conflict = { key: "agent_id, model_id", kept: ["was_ready", "created_at"] as const };
    await upsertRow(this.db, "agent_deployments", row, conflict);
  }

  async wasReady(agentId: string, modelId: string): Promise<void> {
    await this.db.run(`UPDATE agent_deployments SET was_ready = TRUE ${ONE}`, [agentId, modelId]);
  }

  async removeDeployment(agentId: string, modelId: string): Promise<void> {
    await this.db.run(`DELETE FROM agent_deployments ${ONE}`, [agentId, modelId]);
  }

  models(): Promise<ManagedModel[]> {
    return this.db.all<ManagedModel>("SELECT * FROM agent_models ORDER BY model_id");
  }

  async setModel(model: Omit<ManagedModel, "wanted_ms" | "started_ms">): Promise<void> {
    await upsertRow(this.db, "agent_models", model, { key: "model_id" });
  }

  async note(modelId: string, column: NotedColumn, ms: number): Promise<void> {
    await this.db.run(`UPDATE agent_models SET ${column} = $2 WHERE model_id = $1`, [modelId, ms]);
  }

  async remove(id: string): Promise<boolean> {
    return (await this.db.run("DELETE FROM agents WHERE id = $1", [id])) > 0;
  }
}
