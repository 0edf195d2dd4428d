import {
  abilitiesOf,
  type BackendHealth,
  type BackendRegistration,
  type Model,
  type ModelPrice,
  type Params,
  type Result,
} from "@model-gateway/client";
import { act, CliError, type Command, type Invocation, needed, text, UsageError } from "../command.ts";
import type { Connection } from "../connection.ts";
import { readSecret } from "../secrets.ts";

/** What both ways to a list of backends tell of one. */
type ListedBackend = Pick<BackendHealth, "name" | "label" | "state" | "url" | "last_error"> & {
  agents?: readonly Trial[];
  enabled?: boolean;
  circuit?: string | { state: string; model: string | null; consecutive_failures: number } | null;
};

const nameOf = (backend: ListedBackend) => backend.name ?? backend.label;

/** With the admin token where there is one, as machines do it; otherwise as a signed-in administrator. */
async function openDesk(connection: Connection) {
  if (connection.adminToken !== null) {
    const { admin } = connection.asOperator();
    return {
      list: async () => {
        const answer = await admin.backends();
        return { answer, rows: answer.backends.health as ListedBackend[] };
      },
      add: (backend: BackendRegistration) => admin.registerBackend(backend),
      remove: ({ label }: ListedBackend) => admin.removeBackend(Number(/^backend_(\d+)/.exec(label)?.[1])),
    };
  }
  const client = await connection.signedIn();
  return {
    list: async () => {
      const answer = await client.call("backends.list");
      return { answer, rows: answer.backends as ListedBackend[] };
    },
    add: (backend: BackendRegistration) => client.call("backends.add", backend as Params<"backends.add">),
    remove: (backend: ListedBackend) => client.call("backends.remove", { name: nameOf(backend) }),
  };
}

const HEALTH = { Healthy: "serving", Degraded: "serving, with trouble", Unhealthy: "not answering" } as const;

/** The console's words. */
function statusOf({ state, enabled, circuit }: ListedBackend): string {
  if (enabled === false) return "disabled";
  if (typeof circuit !== "object" || circuit === null || circuit.state === "closed")
    return HEALTH[state as keyof typeof HEALTH] ?? state;
  const tests = circuit.state === "half_open" ? "; the next request tests it" : "";
  return `${circuit.model ? `${circuit.model} ` : ""}paused after ${circuit.consecutive_failures} errors${tests}`;
}

type Card = Result<"providers.addresses">[number];

interface Trial {
  name: string;
  ok: boolean;
  detail: string;
}

const badge = ({ name, ok, detail }: Trial) => `${name} ${ok ? "✓" : `✗ (${detail})`}`;
const listOf = (value: string) => value.split(",").map((word) => word.trim());

/** `name: value` on a line each. */
const membersIn = (lines: string): Record<string, string> =>
  Object.fromEntries(
    lines.split("\n").flatMap((line) => {
      const [, name, value = ""] = /^\s*([^:\s]+)\s*:\s*(.*?)\s*$/.exec(line) ?? [];
      return name === undefined ? [] : [[name, value]];
    }),
  );

/** What the options say of a backend. */
function settingsIn(options: Invocation["options"]) {
  const [type, name, auth, models, dialects, drop, set] = [
    ...["type", "name", "auth", "models", "dialects", "drop", "set"],
  ].map((option) => text(options, option));
  const headers = readSecret("backend-headers", options, process.env);
  const apiKey = readSecret("backend-key", options, process.env);
  const [limitField, idPrefix] = [text(options, "limit-field"), text(options, "id-prefix")];
  return {
    ...(type && { type }),
    ...(name && { name }),
    ...(apiKey && { api_key: apiKey }),
    ...(models && { models: listOf(models) }),
    ...(dialects && { dialects: listOf(dialects) }),
    ...(auth && { auth }),
    ...(limitField && { limit_field: limitField }),
    ...(idPrefix && { id_prefix: idPrefix }),
    ...(headers && { headers: membersIn(headers) }),
    ...(set && { set: JSON.parse(set) as Record<string, unknown> }),
    ...(drop && { drop: listOf(drop) }),
  } as BackendRegistration;
}

/** An address, or what a provider's card says: `deepseek`, or `deepseek/2` for its second API. */
async function targetOf(word: string, connection: Connection): Promise<BackendRegistration> {
  if (word.includes("://")) return { url: word };
  if (connection.adminToken !== null)
    throw new CliError("providers are known by their names to those who are signed in");
  const [id, nth = "1"] = word.split("/");
  const apis = (await (await connection.signedIn()).call("providers.addresses")).filter(
    (api) => api.provider_id === id,
  );
  const api = apis[Number(nth) - 1];
  if (!api)
    throw new CliError(`${word} is neither an address nor a provider; see model-gateway backends cards`);
  const { type, url, auth, dialects, needs_key } = api;
  // What a server on one's own machine speaks depends on its version, so its test decides.
  return {
    name: id,
    type,
    url,
    ...(auth && { auth }),
    ...(needs_key && dialects.length > 0 && { dialects }),
  };
}

/** Tries a server, and tells of each trial as it ends. */
async function tryOut({ connection, output }: Pick<Invocation, "connection" | "output">, given: object) {
  const client = await connection.signedIn();
  const stream_id = crypto.randomUUID();
  const leaving = new AbortController();
  const told = (async () => {
    for await (const { method, params } of client.events(stream_id, { signal: leaving.signal }))
      if (method === "backends.progress")
        output.note(badge(params) + (params.ok && params.detail ? `: ${params.detail}` : ""));
  })().catch(() => {});
  const tested = await client.call("backends.test", { ...given, stream_id } as Params<"backends.test">);
  leaving.abort();
  await told;
  return tested;
}

const resultInWords = ({ ok, detail, models, seen, agents }: Result<"backends.test">): string[] => [
  ok ? `Answers; ${models.length} models listed` : `Failed: ${detail}`,
  ...(seen
    ? [
        `Speaks ${seen.dialects.join(", ") || "no chat API"}`,
        agents.map(badge).join("  "),
        `${seen.prompt_tokens} + ${seen.completion_tokens} tokens were used, and charged to nobody here`,
      ]
    : []),
];

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
  summary: "List, find, test, register, change and remove backends",
  examples: [
    "model-gateway backends",
    "model-gateway backends detect --add",
    "model-gateway backends add http://localhost:11434 --name ollama",
    "model-gateway backends add https://api.example.org/v1 --type external --name cloud --backend-key-file upstream.key",
    "model-gateway backends add anthropic --backend-key-file upstream.key",
    "model-gateway backends test anthropic",
    "model-gateway backends edit ollama --address http://gpu-1:11434",
    "model-gateway backends disable ollama",
    "model-gateway backends remove ollama",
  ],
  actions: ["list", "detect", "add", "test", "edit", "disable", "enable", "cards", "remove"],
  options: {
    type: { type: "string", help: "kind or engine name, e.g. local-server, external, vllm" },
    name: { type: "string", help: "name of the backend" },
    "backend-key-file": {
      type: "string",
      help: "file with the key, or several, that the backend itself asks for (or MODEL_GATEWAY_BACKEND_KEY)",
    },
    models: { type: "string", help: "model ids, separated by commas" },
    model: { type: "string", help: "with test: the model that is asked" },
    dialects: { type: "string", help: "chat APIs that it speaks: chat, responses, messages, gemini" },
    auth: { type: "string", help: "how its key is sent: bearer, x-api-key, x-goog-api-key, api-key" },
    "limit-field": { type: "string", help: "max_tokens or max_completion_tokens" },
    "id-prefix": { type: "string", help: "what it wants before model ids, e.g. models/" },
    "backend-headers-file": {
      type: "string",
      help: "file with headers for every request, `name: value` on a line each (or MODEL_GATEWAY_BACKEND_HEADERS)",
    },
    set: { type: "string", help: "fields to set in every request, as a JSON object" },
    drop: { type: "string", help: "fields to drop from every request, separated by commas" },
    add: { type: "boolean", help: "with detect: register every server that was found" },
    address: { type: "string", help: "with edit: its new address" },
    force: { type: "boolean", help: "with add: register it although its test failed" },
  },
  async run({ words, options, output, connection }) {
    if (words[0] === "detect") return detect({ add: Boolean(options.add), output, connection });
    const desk = await openDesk(connection);
    const list = async () => {
      const { answer, rows } = await desk.list();
      if (output.json) return output.result(answer, () => "");
      output.table(
        rows as unknown as Record<string, unknown>[],
        {
          name: nameOf,
          kind: (backend: ListedBackend) => backend.label.split(":")[1] ?? "",
          status: statusOf,
          agents: ({ agents = [] }: ListedBackend) =>
            agents.map(({ name, ok }) => `${name} ${ok ? "✓" : "✗"}`).join(" "),
          url: (backend: ListedBackend) => backend.url ?? "",
          "last error": (backend: ListedBackend) => backend.last_error ?? "",
        },
        "No backend is registered; add one: model-gateway backends add <url>",
      );
    };
    const add = async () => {
      const given = {
        ...(await targetOf(needed(words, 1, "the address of the backend, or its provider"), connection)),
        ...settingsIn(options),
      };
      const trial = (more: object = {}) =>
        tryOut({ connection, output }, { ...given, ...more, name: undefined });
      let tested = connection.adminToken === null ? await trial() : null;
      // Without a kind it was tried as Ollama, which has an API of its own; all others speak the same one.
      if (tested?.ok === false && !given.type) {
        tested = await trial({ type: "external" });
        given.type = "external";
      }
      if (tested && !tested.ok && !options.force)
        throw new CliError(`the test failed: ${tested.detail}. --force registers it all the same`);
      const answer = await desk.add({
        ...given,
        ...(tested && { seen: tested.seen }),
      } as BackendRegistration);
      output.result(answer, () => [
        `Registered ${given.name ?? given.url}; its models can be called as soon as it answers`,
        ...(tested?.seen ? resultInWords(tested).slice(1) : []),
      ]);
    };
    const test = async () => {
      const word = needed(words, 1, "the name of a backend, its address, or its provider");
      const { backends: known } = await (await connection.signedIn()).call("backends.list");
      const isNamed = known.some(({ name }) => name === word);
      const target = isNamed ? { name: word } : { ...(await targetOf(word, connection)), name: undefined };
      const model = text(options, "model");
      const given = { ...target, ...settingsIn(options), ...(model && { model }) };
      const tested = await tryOut({ connection, output }, given);
      output.result(tested, () => resultInWords(tested));
      if (!tested.ok) throw new CliError(`${word} failed its test`);
    };
    const change = async (changes: object, inWords: string) => {
      const name = needed(words, 1, "the name of the backend");
      const client = await connection.signedIn();
      const answer = await client.call("backends.update", { ...changes, name });
      output.result(answer, () => `${name} ${inWords}`);
    };
    const edit = () => {
      const address = text(options, "address");
      const changes = { ...settingsIn(options), ...(address && { url: address }) };
      if (Object.keys(changes).length === 0)
        throw new UsageError(
          "say what to change, e.g. --address http://localhost:8000, or --models qwen3:8b",
        );
      return change(changes, "is changed; it is being probed");
    };
    const disable = () => change({ enabled: false }, "gets no more requests");
    const enable = () => change({ enabled: true }, "gets requests again");
    const cards = async () =>
      output.table(
        await (await connection.signedIn()).call("providers.addresses"),
        {
          provider: ({ provider_id }: Card) => provider_id,
          serves: ({ serves }: Card) => serves,
          speaks: ({ dialects }: Card) => dialects.join(", "),
          address: ({ url }: Card) => url,
        },
        "",
      );
    const remove = async () => {
      const wanted = needed(words, 1, "the name of the backend");
      const { rows } = await desk.list();
      const found = rows.find((backend) => nameOf(backend) === wanted || backend.label === wanted);
      if (!found)
        throw new CliError(
          `no backend is named ${wanted}; there are: ${rows.map(nameOf).join(", ") || "none"}`,
        );
      const answer = await desk.remove(found);
      output.result(answer, () => `${wanted} is removed`);
    };
    await act(words, { list, add, test, edit, disable, enable, cards, remove }, "list");
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
    return price && model.available ? [{ ...model, price }] : [];
  });
}

const withoutPrice = ({ not_billed }: CallableModel["price"]) => (not_billed ? "not billed" : "unpriced");
type Known = Result<"models.list">[number];

export const models: Command = {
  name: "models",
  summary: "List the models that can be called",
  examples: ["model-gateway models", "model-gateway models --json"],
  async run({ output, connection }) {
    const list = await callableModels(connection);
    const catalogue = connection.isSignedIn ? await (await connection.signedIn()).call("models.list") : [];
    const abilities = new Map(catalogue.map((model: Known) => [model.id, abilitiesOf(model)]));
    // Of a model that only makes videos a price by the token says nothing.
    const perMillion = ({ id, price }: CallableModel, usd: number | null) =>
      abilities.get(id)?.join() === "video" ? "by the video" : (usd?.toString() ?? withoutPrice(price));
    output.table(
      list,
      {
        model: ({ id }: CallableModel) => id,
        "served by": ({ owned_by }: CallableModel) => owned_by,
        "$ per million in": (row: CallableModel) => perMillion(row, row.price.input),
        out: (row: CallableModel) => perMillion(row, row.price.output),
        ...(catalogue.length > 0 && {
          "can do": ({ id }: CallableModel) => abilities.get(id)?.join(", ") ?? "",
        }),
      },
      "No model can be called; register a backend: model-gateway backends add <url>",
    );
  },
};
