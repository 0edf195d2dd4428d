/** The node's configuration file: TOML, checked as a whole, with every mistake named by its field. */
import { readFileSync } from "node:fs";
import { describeIssues, ServingOptions } from "@model-gateway/protocol/agent.ts";
import { ModelId } from "@model-gateway/protocol/model-id.ts";
import { z } from "zod";
import { DEFAULT_ENGINES } from "./engines/defaults.ts";
import { checkTemplate } from "./engines/render.ts";
import { describeError, UsageError } from "./errors.ts";
import { fileNameOf } from "./weights/store.ts";

const Template = z.string().superRefine((text, context) => {
  const problem = checkTemplate(text);
  if (problem) context.addIssue({ code: "custom", message: problem });
});
const EnvName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "not a name of an environment variable");
const Env = z.record(EnvName, Template);
const Seconds = z.number().positive().max(86_400);
const Sha256 = z
  .string()
  .regex(/^[0-9a-fA-F]{64}$/, "64 hex digits are expected")
  .transform((hex) => hex.toLowerCase());
const HttpUrl = z
  .string()
  .refine((text) => isHttpUrl(text), { error: "an http:// or https:// URL is expected" });
const Command = z.array(Template).min(1).max(256);

function isHttpUrl(text: string): boolean {
  try {
    decodeURIComponent(new URL(text).pathname);
    return /^https?:\/\/[^\s/]+/.test(text);
  } catch {
    return false;
  }
}

export const EngineTemplate = z.strictObject({
  command: Command,
  env: Env.default({}),
  /** Answers 2xx once the engine can serve. */
  health_path: z.string().startsWith("/").default("/health"),
  ready_timeout_s: Seconds.default(900),
  /** Between SIGTERM and SIGKILL. */
  stop_grace_s: Seconds.default(15),
  /** What the engine is given: a folder in the hub's layout, one GGUF file, or nothing (it fetches itself). */
  weights: z.enum(["snapshot", "gguf", "none"]).default("snapshot"),
  /** Commands to run, one after another, once the engine answers and before the model counts as ready. */
  after_start: z.array(Command).max(8).default([]),
  /** Appended to the command where a context, or a number of slots, is given. */
  context_args: Command.optional(),
  slots_args: Command.optional(),
});
export type EngineTemplate = z.infer<typeof EngineTemplate>;

const WeightsFile = z.strictObject({
  url: HttpUrl,
  sha256: Sha256.optional(),
  /** Name on disk; the last part of the URL's path by default. */
  name: z.string().optional(),
});

export const ModelEntry = z
  .strictObject({
    engine: z.string().optional(),
    /** Hub id `owner/name`, with `:variant` to choose among GGUF files. */
    hub: ModelId.optional(),
    revision: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, "a branch, tag or commit without slashes is expected")
      .default("main"),
    /** Which files of the hub repository; glob patterns. */
    include: z.array(z.string()).min(1).optional(),
    url: HttpUrl.optional(),
    sha256: Sha256.optional(),
    files: z.array(WeightsFile).min(1).max(1000).optional(),
    /** Weights that are already on this machine. */
    path: z.string().startsWith("/", "an absolute path is expected").optional(),
    /** Appended to the engine's command. */
    args: z.array(Template).max(256).default([]),
    env: Env.default({}),
    gpus: z.array(z.int().min(0)).min(1).max(64).optional(),
    ...ServingOptions.shape,
    ready_timeout_s: Seconds.optional(),
  })
  .refine((entry) => [entry.hub, entry.url, entry.files, entry.path].filter(Boolean).length <= 1, {
    error: "give one of hub, url, files, path",
  })
  .refine((entry) => !entry.sha256 || entry.url, {
    error: "sha256 belongs to url; with files, give one each",
  })
  .superRefine(({ files = [] }, context) => {
    const names = files.map(({ name, url }) => name ?? fileNameOf(url));
    const twice = names.find((name, index) => names.indexOf(name) < index);
    if (twice !== undefined)
      context.addIssue({
        code: "custom",
        path: ["files"],
        message: `two are called "${twice}"; give each its own name`,
      });
  });
export type ModelEntry = z.infer<typeof ModelEntry>;

const AgentConfigFile = z.strictObject({
  gateway: z.string().optional(),
  token: z.string().optional(),
  token_file: z.string().optional(),
  name: z.string().min(1).max(256).optional(),
  host: z.string().min(1).max(255).optional(),
  bind: z.string().min(1).optional(),
  data_dir: z.string().optional(),
  mirror: HttpUrl.default("https://huggingface.co").transform((url) => url.replace(/\/+$/, "")),
  /** Environment variable that holds the mirror's access token. */
  mirror_token_env: EnvName.default("HF_TOKEN"),
  default_engine: z.string().default("vllm"),
  /** Whether a model that is not listed under [models] may be deployed by its hub id. */
  allow_unlisted: z.boolean().default(true),
  ports: z
    .tuple([z.int().min(1).max(65_535), z.int().min(1).max(65_535)])
    .refine(([first, last]) => first <= last, { error: "the first port must not be above the last" })
    .optional(),
  /** Requests that the node takes at once through its tunnel; more wait at the gateway. Not given: what its engines take. */
  requests_max: z.int().min(1).max(1_000_000).optional(),
  /** How long a stopping node waits for its requests to end and its models to be served elsewhere. */
  drain_s: Seconds.default(60),
  restarts_max: z.int().min(0).max(1000).default(5),
  restart_delay_s: Seconds.default(1),
  engines: z.record(z.string().regex(/^[a-z0-9][a-z0-9_-]*$/), EngineTemplate).default({}),
  models: z.record(ModelId, ModelEntry).default({}),
});
export type AgentConfig = z.infer<typeof AgentConfigFile>;

/** Reads a configuration from TOML text; `source` names it in errors. */
export function parseConfig(toml: string, source: string): AgentConfig {
  let raw: unknown;
  try {
    raw = Bun.TOML.parse(toml);
  } catch (error) {
    const why = describeError(error).replace(/^TOML Parse error: /, "");
    throw new UsageError(`${source} is not valid TOML, line ${faultyLine(toml)}: ${why}`);
  }
  const parsed = AgentConfigFile.safeParse(raw);
  if (!parsed.success) throw new UsageError(`${source}: ${describeIssues(parsed.error)}`);
  const builtIn = Object.fromEntries(
    Object.entries(DEFAULT_ENGINES).map(([name, template]) => [name, EngineTemplate.parse(template)]),
  );
  const config = { ...parsed.data, engines: { ...builtIn, ...parsed.data.engines } };
  const known = Object.keys(config.engines).join(", ");
  const hasEngine = (name: string) => Object.hasOwn(config.engines, name);
  if (!hasEngine(config.default_engine))
    throw new UsageError(
      `${source}: default_engine: no engine "${config.default_engine}"; there are ${known}`,
    );
  for (const [modelId, { engine }] of Object.entries(config.models))
    if (engine && !hasEngine(engine))
      throw new UsageError(
        `${source}: models."${modelId}".engine: no engine "${engine}"; there are ${known}`,
      );
  return config;
}

/**
 * Where the invalid statement begins. Bun's parser does not say, but everything before that
 * statement parses, and nothing longer does.
 */
function faultyLine(toml: string): number {
  const lines = toml.split("\n");
  let soundLines = lines.length - 1;
  while (soundLines > 0 && !isToml(lines.slice(0, soundLines).join("\n"))) soundLines--;
  const isEmpty = (line: string) => /^\s*(#|$)/.test(line);
  const offset = lines.slice(soundLines).findIndex((line) => !isEmpty(line));
  return soundLines + Math.max(0, offset) + 1;
}

function isToml(text: string): boolean {
  try {
    Bun.TOML.parse(text);
    return true;
  } catch {
    return false;
  }
}

export function loadConfig(path: string | null): AgentConfig {
  if (!path) return parseConfig("", "the built-in configuration");
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`the configuration file cannot be read: ${describeError(error)}`);
  }
  return parseConfig(text, path);
}
