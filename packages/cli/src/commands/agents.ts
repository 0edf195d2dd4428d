import { act, CliError, type Command, needed, text } from "../command.ts";

interface Node {
  agent_id: string;
  name: string;
  online: boolean;
  host: string | null;
  gpus: { name: string; utilization: number | null }[];
  models: { model_id: string; status: string }[];
}

const OVER = new Set(["ready", "failed", "stopped"]);

export const agents: Command = {
  name: "agents",
  summary: "GPU nodes: list, register, deploy and stop models",
  examples: [
    "model-gateway agents",
    "model-gateway agents register rack-3",
    "model-gateway agents deploy Qwen/Qwen3-8B --node rack-3",
    "model-gateway agents stop rack-3 Qwen/Qwen3-8B",
  ],
  actions: ["list", "register", "deploy", "stop", "remove"],
  options: { node: { type: "string", help: "name or id; the least-loaded one unless given" } },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const nodes = async () => (await client.callUnknown("agents.list")) as Node[];
    const idOf = async (wanted: string) => {
      const found = (await nodes()).find(({ agent_id, name }) => agent_id === wanted || name === wanted);
      if (!found) throw new CliError(`no node is named ${wanted}; model-gateway agents lists them`);
      return found.agent_id;
    };
    const list = async () =>
      output.table(
        (await nodes()) as unknown as Record<string, unknown>[],
        {
          name: (row: Node) => row.name,
          state: (row: Node) => (row.online ? "online" : "offline"),
          host: (row: Node) => row.host ?? "",
          gpus: (row: Node) =>
            row.gpus.map(({ name, utilization }) => `${name} ${utilization ?? "?"}%`).join(", "),
          models: (row: Node) =>
            row.models
              .map(({ model_id, status }) => (status === "ready" ? model_id : `${model_id} (${status})`))
              .join(", "),
          id: (row: Node) => row.agent_id,
        },
        "No node is registered; add one: model-gateway agents register <name>",
      );
    const register = async () => {
      const name = needed(words, 1, "the name of the machine");
      const made = (await client.callUnknown("agents.register", {
        machine_name: name,
        version: "unknown",
      })) as { token: string };
      output.note("Shown once. Start the agent on that machine with:");
      output.result(
        made,
        () =>
          `AGENT_GATEWAY=${connection.url.replace(/^http/, "ws")} AGENT_TOKEN=${made.token} npm run agent`,
      );
    };
    const deploy = async () => {
      const modelId = needed(words, 1, "the model to deploy");
      const node = text(options, "node");
      const started = (await client.callUnknown("agents.deploy", {
        model_id: modelId,
        ...(node && { agent_id: await idOf(node) }),
      })) as { stream_id: string };
      for await (const { method, params } of client.events(started.stream_id)) {
        if (method !== "models.progress") continue;
        output.progress(
          `${params.status}${params.message ? `: ${params.message}` : ""}`,
          params.progress / 100,
        );
        if (!OVER.has(params.status)) continue;
        if (params.status !== "ready") throw new CliError(`${modelId}: ${params.message ?? params.status}`);
        return output.result(params, () => `${modelId} is ready`);
      }
    };
    const stop = async () => {
      const agentId = await idOf(needed(words, 1, "the node"));
      const modelId = needed(words, 2, "the model");
      const answer = await client.callUnknown("agents.stop", { agent_id: agentId, model_id: modelId });
      output.result(answer, () => `${modelId} is stopped`);
    };
    const remove = async () => {
      const agentId = await idOf(needed(words, 1, "the node"));
      output.result(
        await client.callUnknown("agents.deregister", { agent_id: agentId }),
        () => "Deregistered",
      );
    };
    await act(words, { list, register, deploy, stop, remove }, "list");
  },
};
