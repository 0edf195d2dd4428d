import type { Client, Result } from "@model-gateway/client";
import catalogue from "@model-gateway/client/node-models.json" with { type: "json" };
import {
  act,
  CliError,
  type Command,
  type Invocation,
  needed,
  refuseIdle,
  text,
  UsageError,
  wholeNumber,
} from "../command.ts";
import { plain } from "../output.ts";

type Node = Result<"agents.list">[number];
type Model = Node["models"][number];
type Fit = Result<"agents.fits">[number];

const OVER = new Set(["ready", "failed", "stopped"]);
const MODES = { always: "always", "on-demand": "on_demand", off: "off" } as const;
const SERVING = ["context", "slots", "gpus"] as const;

const gigabytes = (mb: number) => `${(mb / 1024).toFixed(1)} GB`;

/** Lines of an engine as they are; nothing else that could move the cursor. */
const plainLines = (message: string) => message.split("\n").map(plain);

function memoryInWords({ memory_mb, estimate }: Model): string {
  const expected = estimate && `${gigabytes(estimate.total_mb)} expected`;
  return [memory_mb !== undefined && gigabytes(memory_mb), expected].filter(Boolean).join(", ");
}

function partsInWords({ estimate, why }: Fit): string {
  if (estimate === null) return why ?? "unknown";
  const { weights_mb, cache_mb, overhead_mb, context_tokens, slots } = estimate;
  const cache = cache_mb === null ? "cache unknown" : `cache ${gigabytes(cache_mb)}`;
  const of = context_tokens === null ? "" : ` (${slots} × ${context_tokens} tokens)`;
  return `weights ${gigabytes(weights_mb)}, ${cache}${of}, overhead ${gigabytes(overhead_mb)}`;
}

/** One of the actions below, on behalf of somebody who is signed in. */
interface Call extends Invocation {
  client: Client;
}

const stateOf = ({ online, draining }: Node) => (online ? (draining ? "draining" : "online") : "offline");

/** The node that the word at this place names, by its name or its id. */
async function nodeAt({ words, client }: Call, place: number): Promise<Node> {
  return findNode(client, needed(words, place, "the node"));
}

async function findNode(client: Client, wanted: string): Promise<Node> {
  const nodes = await client.call("agents.list");
  const found = nodes.find(({ agent_id, name }) => agent_id === wanted || name === wanted);
  if (!found) throw new CliError(`no node is named ${wanted}; model-gateway agents lists them`);
  return found;
}

function servingOf({ options }: Call) {
  const [context_tokens, slots, gpu_count] = SERVING.map((name) => wholeNumber(options, name));
  return {
    ...(context_tokens && { context_tokens }),
    ...(slots && { slots }),
    ...(gpu_count && { gpu_count }),
  };
}

async function list({ client, output }: Call): Promise<void> {
  output.table(
    await client.call("agents.list"),
    {
      name: (row: Node) => row.name,
      state: stateOf,
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
}

async function show(call: Call): Promise<void> {
  const { output } = call;
  const node = await nodeAt(call, 1);
  const gpus = node.gpus.map(({ index, name, utilization, memory_used_mb, memory_total_mb }) => {
    const load = utilization === null ? "load unknown" : `load ${utilization}%`;
    const memory =
      memory_used_mb === null || memory_total_mb === null
        ? "memory unknown"
        : `memory ${gigabytes(memory_used_mb)} of ${gigabytes(memory_total_mb)}`;
    return `GPU ${index}: ${plain(name)}, ${load}, ${memory}`;
  });
  const models = node.models.flatMap((model) => {
    const { model_id, status, progress, message } = model;
    const share = OVER.has(status) ? "" : ` ${Math.round(progress)}%`;
    const facts = [`${status}${share}`, memoryInWords(model)].filter(Boolean).join(", ");
    return [
      `${model_id}: ${output.state(status, facts)}`,
      ...(message ? plainLines(message).map((line) => `  ${line}`) : []),
    ];
  });
  output.result(node, () => [`${plain(node.name)}: ${output.state(stateOf(node))}`, ...gpus, ...models]);
}

async function register({ words, client, output, connection }: Call): Promise<void> {
  const machine_name = needed(words, 1, "the name of the machine");
  const made = await client.call("agents.register", { machine_name, version: "unknown" });
  output.note("Shown once. Start the agent on that machine with:");
  const address = connection.url.replace(/^http/, "ws");
  output.result(made, () => `AGENT_GATEWAY=${address} AGENT_TOKEN=${made.token} npm run agent`);
}

async function models({ output }: Call): Promise<void> {
  output.note(
    `Sizes of the files on the hub, as of ${catalogue.dated}; any other model can be deployed, too.`,
  );
  output.table(
    catalogue.models.flatMap(({ name, context_tokens, variants }) =>
      variants.map((variant) => ({ name, context_tokens, ...variant })),
    ),
    {
      name: (row: { name: string }) => row.name,
      quantisation: (row: { quantisation: string }) => row.quantisation,
      GB: (row: { size_gb: number }) => row.size_gb.toFixed(1),
      context: (row: { context_tokens: number }) => String(row.context_tokens),
      model: (row: { model_id: string }) => row.model_id,
    },
    "",
  );
}

async function fits(call: Call): Promise<void> {
  const model_id = needed(call.words, 1, "the model");
  call.output.table(
    await call.client.call("agents.fits", { model_id, ...servingOf(call) }),
    {
      node: (row: Fit) => row.name,
      fits: (row: Fit) => (row.estimate === null ? "unknown" : row.fits ? "yes" : "no"),
      needs: (row: Fit) => (row.estimate ? gigabytes(row.estimate.total_mb) : "-"),
      room: (row: Fit) => (row.room_mb === null ? "-" : gigabytes(row.room_mb)),
      parts: partsInWords,
    },
    "No node is online; model-gateway agents lists them",
  );
}

async function deploy(call: Call): Promise<void> {
  const { words, options, client, output } = call;
  const modelId = needed(words, 1, "the model to deploy");
  const node = text(options, "node");
  const { stream_id } = await client.call("agents.deploy", {
    model_id: modelId,
    ...(node && { agent_id: (await findNode(client, node)).agent_id }),
    ...servingOf(call),
  });
  for await (const { method, params } of client.events(stream_id)) {
    if (method !== "models.progress") continue;
    const { status, progress, message } = params;
    if (status === "failed" || status === "stopped")
      throw new CliError(`${modelId}: ${plainLines(message ?? status).join("\n")}`);
    output.progress(`${status}${message ? `: ${plain(message)}` : ""}`, progress / 100);
    if (status === "ready") return output.result(params, () => `${modelId} is ready`);
  }
}

async function serve(call: Call): Promise<void> {
  const { words, client, output } = call;
  const model_id = needed(words, 1, "the model");
  const wanted = needed(words, 2, "how it is served (always, on-demand or off)");
  const mode = Object.hasOwn(MODES, wanted) ? MODES[wanted as keyof typeof MODES] : null;
  if (!mode) throw new UsageError(`${wanted}: a model is served always, on-demand or off`);
  const answer = await client.call("agents.serve", { model_id, mode, ...servingOf(call) });
  output.result(answer, () => `${model_id} is served ${mode === "off" ? "no more" : wanted}`);
}

async function log(call: Call): Promise<void> {
  const { words, options, client, output } = call;
  const { agent_id } = await nodeAt(call, 1);
  const model_id = needed(words, 2, "the model");
  const lines = wholeNumber(options, "lines");
  const written = await client.call("agents.log", { agent_id, model_id, ...(lines && { lines }) });
  output.result(written, () => plainLines(written.text));
}

async function stop(call: Call): Promise<void> {
  const { agent_id } = await nodeAt(call, 1);
  const model_id = needed(call.words, 2, "the model");
  const answer = await call.client.call("agents.stop", { agent_id, model_id });
  call.output.result(answer, () => `${model_id} is stopped`);
}

async function drain(call: Call): Promise<void> {
  const draining = call.words[0] === "drain";
  const { agent_id, name } = await nodeAt(call, 1);
  const answer = await call.client.call("agents.drain", { agent_id, draining });
  call.output.result(answer, () => `${name} ${draining ? "is being drained" : "serves again"}`);
}

async function remove(call: Call): Promise<void> {
  const { agent_id } = await nodeAt(call, 1);
  call.output.result(await call.client.call("agents.deregister", { agent_id }), () => "Deregistered");
}

const ACTIONS = {
  ...{ list, show, register, models, fits, deploy, serve, log, stop },
  ...{ drain, undrain: drain, remove },
};

export const agents: Command = {
  name: "agents",
  summary:
    "GPU nodes: list, register, drain; what fits, deploy and stop models, and what their engines write",
  examples: [
    "model-gateway agents",
    "model-gateway agents show rack-3",
    "model-gateway agents register rack-3",
    "model-gateway agents models",
    "model-gateway agents fits Qwen/Qwen3-8B --context 16384 --slots 8",
    "model-gateway agents deploy Qwen/Qwen3-8B --node rack-3",
    "model-gateway agents serve Qwen/Qwen3-8B on-demand",
    "model-gateway agents log rack-3 Qwen/Qwen3-8B --lines 50",
    "model-gateway agents stop rack-3 Qwen/Qwen3-8B",
    "model-gateway agents drain rack-3",
  ],
  actions: Object.keys(ACTIONS),
  options: {
    node: { type: "string", help: "name or id; the one with the most room unless given" },
    context: { type: "string", help: "longest prompt and answer together, in tokens" },
    slots: { type: "string", help: "requests that the engine serves at once" },
    gpus: { type: "string", help: "GPUs that the model is split over" },
    lines: { type: "string", help: "lines of the log; 100 unless given, at most 1000" },
  },
  async run(invocation) {
    const { words, options, connection } = invocation;
    const action = words[0] ?? "list";
    if (action !== "deploy") refuseIdle(options, ["node"], `with agents ${action}`);
    if (!["deploy", "serve", "fits"].includes(action)) refuseIdle(options, SERVING, `with agents ${action}`);
    if (action !== "log") refuseIdle(options, ["lines"], `with agents ${action}`);
    const call = { ...invocation, client: await connection.signedIn() };
    const bound = Object.entries(ACTIONS).map(([name, run]) => [name, () => run(call)] as const);
    await act(words, Object.fromEntries(bound), "list");
  },
};
