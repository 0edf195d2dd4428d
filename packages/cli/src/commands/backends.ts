import type { Alias, BackendHealth, Model, ModelPrice, Result } from "@model-gateway/client";
import { act, CliError, type Command, type Invocation, needed, text } from "../command.ts";
import type { Connection } from "../connection.ts";
import { readSecret } from "../secrets.ts";

const nameOf = (backend: BackendHealth) => backend.name ?? backend.label;

function circuitInWords({ circuit }: BackendHealth): string {
  if (typeof circuit !== "object" || circuit === null) return circuit ?? "";
  return circuit.retry_at ? `${circuit.state} until ${circuit.retry_at}` : circuit.state;
}

type Detected = Result<"backends.detect">["servers"][number];

function detectedInWords({ models, models_total, registered_as, detail }: Detected): string {
  if (detail !== null) return detail;
  const listed = models.slice(0, 3).join(", ");
  const more = models_total > 3 ? ` and ${models_total - 3} more` : "";
  return `${listed || "no model yet"}${more}${registered_as ? `; registered as ${registered_as}` : ""}`;
}

/** Looks on the service's own machine; takes a signed-in administrator, not the admin token. */
async function detect({
  add,
  output,
  connection,
}: Pick<Invocation, "output" | "connection"> & { add: boolean }) {
  const client = await connection.signedIn();
  const { servers } = await client.call("backends.detect");
  const added: string[] = [];
  for (const { id, found, registered_as } of add ? servers : []) {
    if (found && registered_as === null)
      added.push((await client.call("backends.adopt", { server: id })).name);
  }
  if (output.json) return output.result({ servers, added }, () => "");
  output.table(
    servers,
    {
      server: ({ label }: Detected) => label,
      address: ({ url }: Detected) => url,
      found: ({ found }: Detected) => (found ? "yes" : "no"),
      "models, or why not": detectedInWords,
    },
    "",
  );
  if (added.length > 0) output.note(`Registered ${added.join(", ")}`);
  else if (servers.some(({ found, registered_as }) => found && registered_as === null))
    output.note("Register what was found: model-gateway backends detect --add");
}

export const backends: Command = {
  name: "backends",
  summary: "List, find, register and remove backends; set aliases",
  examples: [
    "model-gateway backends",
    "model-gateway backends detect --add",
    "model-gateway backends add http://localhost:11434 --name ollama",
    "model-gateway backends add https://api.example.org/v1 --type external --name cloud --backend-key-file upstream.key",
    "model-gateway backends remove ollama",
    "model-gateway backends alias fast qwen3:8b",
  ],
  actions: ["list", "detect", "add", "remove", "aliases", "alias", "unalias"],
  options: {
    type: { type: "string", help: "kind or engine name, e.g. local-server, external, vllm" },
    name: { type: "string", help: "name of the backend" },
    "backend-key-file": {
      type: "string",
      help: "file with the key that the backend itself asks for (or MODEL_GATEWAY_BACKEND_KEY)",
    },
    models: { type: "string", help: "model ids, separated by commas" },
    add: { type: "boolean", help: "with detect: register every server that was found" },
  },
  async run({ words, options, output, connection }) {
    if (words[0] === "detect") return detect({ add: Boolean(options.add), output, connection });
    const { admin } = connection.asOperator();
    const list = async () => {
      const answer = await admin.backends();
      if (output.json) return output.result(answer, () => "");
      output.table(
        answer.backends.health,
        {
          name: nameOf,
          kind: (backend: BackendHealth) => backend.label.split(":")[1] ?? "",
          health: (backend: BackendHealth) => backend.state,
          circuit: circuitInWords,
          url: (backend: BackendHealth) => backend.url ?? "",
          "last error": (backend: BackendHealth) => backend.last_error ?? "",
        },
        "No backend is registered; add one: model-gateway backends add <url>",
      );
    };
    const add = async () => {
      const url = needed(words, 1, "the address of the backend");
      const apiKey = readSecret("backend-key", options, process.env);
      const models = text(options, "models");
      const type = text(options, "type");
      const name = text(options, "name");
      const answer = await admin.registerBackend({
        url,
        ...(type && { type }),
        ...(name && { name }),
        ...(apiKey && { api_key: apiKey }),
        ...(models && { models: models.split(",").map((id) => id.trim()) }),
      });
      output.result(
        answer,
        () => `Registered ${name ?? url}; its models can be called as soon as it answers`,
      );
    };
    const remove = async () => {
      const wanted = needed(words, 1, "the name of the backend");
      const { health } = (await admin.backends()).backends;
      const found = health.find((backend) => nameOf(backend) === wanted || backend.label === wanted);
      if (!found)
        throw new CliError(
          `no backend is named ${wanted}; there are: ${health.map(nameOf).join(", ") || "none"}`,
        );
      const answer = await admin.removeBackend(Number(/^backend_(\d+)/.exec(found.label)?.[1]));
      output.result(answer, () => `${wanted} is removed`);
    };
    const aliases = async () =>
      output.table(
        (await admin.aliases()) as unknown as Record<string, unknown>[],
        { alias: (row: Alias) => row.alias, target: (row: Alias) => row.target },
        "No alias is set",
      );
    const alias = async () => {
      const pair = {
        alias: needed(words, 1, "the alias"),
        target: needed(words, 2, "the model it stands for"),
      };
      output.result(await admin.setAlias(pair), () => `${pair.alias} stands for ${pair.target}`);
    };
    const unalias = async () => {
      const name = needed(words, 1, "the alias");
      output.result(await admin.removeAlias(name), () => `${name} is no alias any more`);
    };
    await act(words, { list, add, remove, aliases, alias, unalias }, "list");
  },
};

export interface CallableModel extends Model, Record<string, unknown> {
  price: ModelPrice;
}

/** The service also lists models that it suggests; those that no backend serves cannot be called. */
export async function callableModels({ client }: Connection): Promise<CallableModel[]> {
  const [list, prices] = await Promise.all([client.rest.models(), client.rest.prices()]);
  return list.flatMap((model) => {
    const price = prices.find((one) => one.model === model.id);
    return price ? [{ ...model, price }] : [];
  });
}

export const models: Command = {
  name: "models",
  summary: "List the models that can be called",
  examples: ["model-gateway models", "model-gateway models --json"],
  async run({ output, connection }) {
    const list = await callableModels(connection);
    output.table(
      list,
      {
        model: ({ id }: CallableModel) => id,
        "served by": ({ owned_by }: CallableModel) => owned_by,
        "$ per million in": ({ price }: CallableModel) => price.input?.toString() ?? "unpriced",
        out: ({ price }: CallableModel) => price.output?.toString() ?? "unpriced",
      },
      "No model can be called; register a backend: model-gateway backends add <url>",
    );
  },
};
