import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { CliError, type Command, type Invocation, text } from "../command.ts";
import { didYouMean } from "../did-you-mean.ts";
import { callableModels } from "./backends.ts";

interface Settings {
  origin: string;
  key: string;
  model: string;
}

interface Connectable {
  label: string;
  /** What to paste, and where. */
  show(settings: Settings): string;
  /** The file that holds it, and its content with the settings added to what was there. */
  file?: {
    path(): string;
    merge(before: string | null, settings: Settings): string;
  };
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function deepMerge(before: Json, added: Json): Json {
  const merged = { ...before };
  for (const [name, value] of Object.entries(added)) {
    const old = merged[name];
    merged[name] = isObject(old) && isObject(value) ? deepMerge(old, value) : value;
  }
  return merged;
}

/** Only what is ours changes; the rest of the file stays. */
function mergedJson(before: string | null, added: Json): string {
  let old: unknown = {};
  try {
    old = before === null ? {} : JSON.parse(before);
  } catch {
    throw new CliError(
      "the file that is there is not JSON; add the settings by hand (without --write they are printed)",
    );
  }
  if (!isObject(old)) throw new CliError("the file that is there holds no JSON object");
  return `${JSON.stringify(deepMerge(old, added), null, 2)}\n`;
}

const json = (value: Json) => JSON.stringify(value, null, 2);
const exported = (variables: Record<string, string>) =>
  Object.entries(variables)
    .map(([name, value]) => `export ${name}='${value.replaceAll("'", "'\\''")}'`)
    .join("\n");

const claudeCode = ({ origin, key, model }: Settings) => ({
  ANTHROPIC_BASE_URL: origin,
  ANTHROPIC_AUTH_TOKEN: key,
  ANTHROPIC_MODEL: model,
  ANTHROPIC_SMALL_FAST_MODEL: model,
});

const codex = ({ origin, model }: Settings) => `model = ${JSON.stringify(model)}
model_provider = "gateway"

[model_providers.gateway]
name = "Model gateway"
base_url = "${origin}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
`;

const openCode = ({ origin, key, model }: Settings): Json => ({
  provider: {
    gateway: {
      npm: "@ai-sdk/openai-compatible",
      name: "Model gateway",
      options: { baseURL: `${origin}/v1`, apiKey: key },
      models: { [model]: {} },
    },
  },
  model: `gateway/${model}`,
});

/** Programs that people use with a gateway, by the word for the command line. */
export const CLIENTS: Readonly<Record<string, Connectable>> = {
  "claude-code": {
    label: "Claude Code",
    show: (settings) => `${exported(claudeCode(settings))}\nclaude`,
    file: {
      path: () => join(homedir(), ".claude", "settings.json"),
      merge: (before, settings) => mergedJson(before, { env: claudeCode(settings) }),
    },
  },
  codex: {
    label: "Codex",
    show: (settings) =>
      `# ~/.codex/config.toml\n${codex(settings)}\n# in the shell\n${exported({ GATEWAY_KEY: settings.key })}\ncodex`,
    file: {
      path: () => join(homedir(), ".codex", "config.toml"),
      merge(before, settings) {
        if (before?.trim())
          throw new CliError(
            "~/.codex/config.toml exists already; add the settings by hand (without --write they are printed)",
          );
        return codex(settings);
      },
    },
  },
  opencode: {
    label: "OpenCode",
    show: (settings) => `# opencode.json\n${json(openCode(settings))}`,
    file: {
      path: () => join(process.cwd(), "opencode.json"),
      merge: (before, settings) => mergedJson(before, openCode(settings)),
    },
  },
  "open-webui": {
    label: "Open WebUI",
    show: ({ origin, key }) =>
      `${exported({ OPENAI_API_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: key })}\nopen-webui serve`,
  },
  continue: {
    label: "Continue",
    show: ({ origin, key, model }) => `# ~/.continue/config.yaml
models:
  - name: ${JSON.stringify(model)}
    provider: openai
    model: ${JSON.stringify(model)}
    apiBase: ${origin}/v1
    apiKey: ${key}`,
  },
  aider: {
    label: "Aider",
    show: ({ origin, key, model }) =>
      `${exported({ OPENAI_API_BASE: `${origin}/v1`, OPENAI_API_KEY: key })}\naider --model 'openai/${model}'`,
  },
  openai: {
    label: "OpenAI's libraries, and what is built on them",
    show: ({ origin, key }) => exported({ OPENAI_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: key }),
  },
  anthropic: {
    label: "Anthropic's libraries",
    show: ({ origin, key }) => exported({ ANTHROPIC_BASE_URL: origin, ANTHROPIC_AUTH_TOKEN: key }),
  },
};

/** The key that was given, or a new one with the client's name. */
async function keyFor({ connection, output }: Invocation, client: string): Promise<string> {
  if (connection.key !== null) return connection.key;
  const made = await (await connection.signedIn()).call("keys.create", { name: client });
  output.note(`Made the key "${client}" for it; model-gateway keys lists your keys`);
  return made.key;
}

async function modelFor({ connection, options }: Invocation): Promise<string> {
  const model = text(options, "model") ?? (await callableModels(connection))[0]?.id;
  if (!model)
    throw new CliError("no model can be called; register a backend: model-gateway backends add <url>");
  return model;
}

function write(file: NonNullable<Connectable["file"]>, settings: Settings): string {
  const path = file.path();
  const content = file.merge(existsSync(path) ? readFileSync(path, "utf8") : null, settings);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}

export const connect: Command = {
  name: "connect",
  summary: "Settings for the programs that you use: Claude Code, Codex, OpenCode, Open WebUI, …",
  examples: [
    "model-gateway connect",
    "model-gateway connect claude-code --model qwen3:8b",
    "model-gateway connect opencode --write",
    "MODEL_GATEWAY_KEY=service-… model-gateway connect codex",
  ],
  actions: Object.keys(CLIENTS),
  options: {
    model: { type: "string", short: "m", help: "model id; the first that can be called unless given" },
    write: { type: "boolean", help: "put the settings into the program's own file instead of printing them" },
  },
  async run(invocation) {
    const { words, options, output, connection } = invocation;
    const name = words[0];
    if (name === undefined) {
      const rows = Object.entries(CLIENTS).map(([client, { label }]) => ({ client, label }));
      return output.table(
        rows,
        { client: (row: { client: string }) => row.client, program: (row: { label: string }) => row.label },
        "",
      );
    }
    if (!Object.hasOwn(CLIENTS, name))
      throw new CliError(
        `"${name}" is not among the programs that are known here${didYouMean(name, Object.keys(CLIENTS)) || `: ${Object.keys(CLIENTS).join(", ")}`}`,
      );
    const client = CLIENTS[name]!;
    if (options.write && !client.file)
      throw new CliError(`${client.label} has no file to write to; leave out --write`);
    const model = await modelFor(invocation);
    const settings: Settings = { origin: connection.url, model, key: await keyFor(invocation, name) };
    if (!options.write) return output.result({ client: name, ...settings }, () => client.show(settings));
    const path = write(client.file!, settings);
    output.result({ client: name, path, model }, () => `${client.label}: wrote ${path}`);
    if (name === "codex")
      output.note(`Codex takes the key from the environment: ${exported({ GATEWAY_KEY: settings.key })}`);
  },
};
