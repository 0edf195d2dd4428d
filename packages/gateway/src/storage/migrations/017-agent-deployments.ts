import type { Migration } from "../migrate.ts";

/** What an administrator deployed to each node: a node serves nothing else. */
export const agentDeployments: Migration = {
  id: 17,
  name: "deployments of agent nodes",
  statements: [
    `CREATE TABLE agent_deployments (
      agent_id TEXT NOT NULL REFERENCES agents(id) ON DELETE CASCADE,
      model_id TEXT NOT NULL,
      beside_backends {boolean} NOT NULL,
      created_at {timestamp} NOT NULL,
      PRIMARY KEY (agent_id, model_id)
    )`,
  ],
};
